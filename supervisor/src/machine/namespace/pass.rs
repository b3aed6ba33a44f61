//! Lines of JSON and open files over a unix socket, in both directions; blocking.
use rustix::io::IoSliceMut;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most open files in one message.
const FILES: usize = 16;
/// Longest message, in bytes.
const BYTES: usize = 64 * 1024;

/// Sends one message with open files.
///
/// # Errors
/// The peer is gone, or there are more files than one message takes.
pub(crate) fn send<M: Serialize>(to: impl AsFd, message: &M, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > BYTES || files.len() > FILES {
        return Err(io::Error::other("the message is too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("the open files do not fit into one message"));
    }
    let sent = sendmsg(to, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::Error::other("the message was cut"))
    }
}

/// Receives one message; the socket keeps messages apart (`SOCK_SEQPACKET`).
///
/// # Errors
/// `UnexpectedEof` if the peer is gone, or the message makes no sense.
pub(crate) fn receive<M: DeserializeOwned>(from: impl AsFd) -> io::Result<(M, Vec<OwnedFd>)> {
    let mut bytes = vec![0; BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        from,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())?;
    Ok((message, files))
}

#[cfg(test)]
mod tests {
    use super::{receive, send};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_message_and_its_open_files_arrive_together() {
        let (here, there) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        file.rewind().unwrap();
        send(&here, &"first", &[file.as_fd(), file.as_fd()]).unwrap();
        send(&here, &"second", &[]).unwrap();
        let (message, files): (String, _) = receive(&there).unwrap();
        assert_eq!((message.as_str(), files.len()), ("first", 2));
        let mut text = String::new();
        File::from(files.into_iter().next().unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "content");
        assert_eq!(receive::<String>(&there).unwrap().0, "second");
        drop(here);
        assert!(receive::<String>(&there).is_err());
    }
}
