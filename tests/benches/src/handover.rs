//! Hands listeners over to a gateway, as a machine's driver does: one for redirected connections, one for names.
use anyhow::Context;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Opens both listeners and gives them to the session; the port of the first is what the kernel redirects to.
pub(crate) fn give(state: &Path, session: &str, redirect: SocketAddr, dns: SocketAddr) -> anyhow::Result<()> {
    let (redirect, dns) = (TcpListener::bind(redirect)?, UdpSocket::bind(dns)?);
    let mut stream = UnixStream::connect(state.join("handover.sock"))?;
    let line = serde_json::json!({"session": session, "listeners": ["redirect", "dns"]});
    let line = format!("{line}\n").into_bytes();
    let descriptors = [redirect.as_fd(), dns.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    anyhow::ensure!(
        control.push(SendAncillaryMessage::ScmRights(&descriptors)),
        "two descriptors do not fit"
    );
    let sent = sendmsg(&stream, &[IoSlice::new(&line)], &mut control, SendFlags::empty())?;
    stream.write_all(&line[sent..])?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .context("the gateway does not answer the hand-over")?;
    anyhow::ensure!(
        answer.contains("serving"),
        "the gateway refused the listeners: {answer}"
    );
    Ok(())
}
