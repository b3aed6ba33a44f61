//! Netlink messages: building them (pure) and asking the kernel to carry them out.
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use std::io;
use std::time::Duration;

/// `NLM_F_REQUEST | NLM_F_ACK`: all that is asked here is to be acknowledged.
const REQUEST_ACK: u16 = 1 | 4;
/// `NLM_F_CREATE`.
pub(super) const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub(super) const APPEND: u16 = 0x800;
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 0x8000;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Attributes being built (`struct nlattr`, padded to four bytes).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds one with bytes as they are.
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // Every value here is far shorter than an attribute can be.
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a text, ended by a zero byte.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Adds a number in network order, as nftables wants it.
    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds attributes within an attribute.
    pub(super) fn nested(self, kind: u16, value: &Attributes) -> Self {
        self.bytes(kind | NLA_F_NESTED, &value.0)
    }
}

/// One message without its header.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// `nlmsg_type`.
    pub(super) kind: u16,
    /// Flags besides `REQUEST_ACK`.
    pub(super) flags: u16,
    /// The family's own header.
    pub(super) header: Vec<u8>,
    /// What follows.
    pub(super) attributes: Attributes,
    /// Whether an answer is wanted; the marks of a batch get none.
    pub(super) acknowledged: bool,
}

/// Messages as the kernel reads them, numbered from 1.
pub(super) fn encode(messages: &[Message]) -> Vec<u8> {
    let mut all = Vec::new();
    for (message, sequence) in messages.iter().zip(1u32..) {
        let length = HEADER_BYTES + message.header.len() + message.attributes.0.len();
        let flags = if message.acknowledged { REQUEST_ACK } else { 1 } | message.flags;
        all.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        all.extend_from_slice(&message.kind.to_ne_bytes());
        all.extend_from_slice(&flags.to_ne_bytes());
        all.extend_from_slice(&sequence.to_ne_bytes());
        all.extend_from_slice(&0u32.to_ne_bytes());
        all.extend_from_slice(&message.header);
        all.extend_from_slice(&message.attributes.0);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

/// Sends messages in one piece and waits until each is acknowledged.
///
/// # Errors
/// The kernel's own error for the first message that it refused.
pub(super) fn request(protocol: Option<Protocol>, messages: &[Message]) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &encode(messages), SendFlags::empty(), &kernel)?;
    let mut waiting = messages.iter().filter(|message| message.acknowledged).count();
    let mut buffer = vec![0; 32 * 1024];
    while waiting > 0 {
        let (_, received) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        waiting = waiting.saturating_sub(acknowledged(buffer.get(..received).unwrap_or_default())?);
    }
    Ok(())
}

/// Counts acknowledgements in an answer.
fn acknowledged(mut answer: &[u8]) -> io::Result<usize> {
    let mut count = 0;
    while let Some(header) = answer.first_chunk::<HEADER_BYTES>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let message = answer.get(HEADER_BYTES..length).ok_or_else(garbled)?;
        if kind == NLMSG_ERROR {
            let code = message.first_chunk::<4>().ok_or_else(garbled)?;
            match i32::from_ne_bytes(*code) {
                0 => count += 1,
                code => return Err(io::Error::from_raw_os_error(-code)),
            }
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

fn garbled() -> io::Error {
    io::Error::other("the kernel's netlink answer cannot be read")
}

#[cfg(test)]
mod tests {
    use super::{Attributes, Message, acknowledged, encode};

    #[test]
    fn attributes_are_padded_to_four_bytes_but_say_their_own_length() {
        let built = Attributes::default().text(1, "ab").number(2, 7);
        assert_eq!(built.0, [7, 0, 1, 0, b'a', b'b', 0, 0, 8, 0, 2, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn messages_say_their_length_and_number() {
        let message = Message {
            kind: 16,
            flags: 0x400,
            header: vec![1, 2, 3, 4],
            attributes: Attributes::default(),
            acknowledged: true,
        };
        let bytes = encode(&[message.clone(), message]);
        assert_eq!(bytes[..12], [20, 0, 0, 0, 16, 0, 5, 4, 1, 0, 0, 0]);
        assert_eq!(bytes[28..32], [2, 0, 0, 0]);
    }

    #[test]
    fn an_error_of_the_kernel_is_told_and_a_cut_answer_is_no_panic() {
        let mut answer = vec![36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        answer.extend_from_slice(&(-1i32).to_ne_bytes());
        answer.extend_from_slice(&[0; 16]);
        let error = acknowledged(&answer).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(acknowledged(&answer[..20]).is_err());
        answer[16..20].copy_from_slice(&[0; 4]);
        assert_eq!(acknowledged(&answer).unwrap(), 1);
    }
}
