//! SOCKS 5 as bytes (RFC 1928, and RFC 1929 for names and passwords): what a client has said so far, and the answers. Pure.
use sallyport_policy::{Destination, Host};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version that each message but the one with the password begins with.
pub const VERSION: u8 = 5;
/// The version of RFC 1929's one message.
const PASSWORD_VERSION: u8 = 1;
/// No authentication.
const NOTHING: u8 = 0;
/// Name and password.
const PASSWORD: u8 = 2;

/// A message read from the beginning of what came, and its length in bytes; none while more must come.
pub type Read<T> = Result<Option<(T, usize)>, Fault>;

/// Why bytes are no message. The client's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Another version.
    #[error("a SOCKS message has version {0}, which is not served here")]
    Version(u8),
    /// A reserved byte that is not zero.
    #[error("the reserved byte of a SOCKS request is not zero")]
    Reserved,
    /// Neither a name nor an address.
    #[error("a SOCKS request has address type {0}, which there is not")]
    AddressType(u8),
    /// A destination that nothing can be: an impossible name, or port 0.
    #[error("a SOCKS request cannot be read: {0}")]
    Destination(String),
}

impl Fault {
    /// How a request with this fault is answered.
    pub fn reply(&self) -> Reply {
        match self {
            Self::AddressType(_) => Reply::AddressTypeUnsupported,
            _ => Reply::Failed,
        }
    }
}

/// How a client may show who it is (RFC 1928 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Not at all.
    pub nothing: bool,
    /// By name and password.
    pub password: bool,
}

/// The gateway's choice (RFC 1928 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Go on without.
    Nothing,
    /// Say name and password.
    Password,
    /// None of what was offered.
    Unacceptable,
}

/// Name and password as sent (RFC 1929 section 2).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Up to 255 bytes.
    pub name: Vec<u8>,
    /// Up to 255 bytes.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// What a client wants (RFC 1928 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// A connection.
    Connect,
    /// A port on which others connect.
    Bind,
    /// A relay of datagrams.
    UdpAssociate,
    /// Something that is in no RFC.
    Other(u8),
}

impl Command {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Bind => "BIND",
            Self::UdpAssociate => "UDP ASSOCIATE",
            Self::Other(_) => "unknown SOCKS command",
        }
    }
}

/// A request: what, and with whom. For anything but CONNECT the destination is no more than told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub command: Command,
    /// With whom, as sent.
    pub host: Asked,
    /// The port as sent.
    pub port: u16,
}

/// A destination's host as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// An address.
    Address(IpAddr),
    /// The bytes of a name.
    Name(Vec<u8>),
}

/// Answers to a request (RFC 1928 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Go on.
    Succeeded = 0,
    /// The request makes no sense.
    Failed = 1,
    /// Not allowed by the rules.
    NotAllowed = 2,
    /// Not this command.
    CommandUnsupported = 7,
    /// Not this type of address.
    AddressTypeUnsupported = 8,
}

impl Choice {
    /// As it is sent.
    pub fn bytes(self) -> [u8; 2] {
        [
            VERSION,
            match self {
                Self::Nothing => NOTHING,
                Self::Password => PASSWORD,
                Self::Unacceptable => 0xff,
            },
        ]
    }
}

impl Reply {
    /// As it is sent. The bound address is zero: the connection upstream comes later, if at all.
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// The answer to name and password (RFC 1929 section 2).
pub fn checked(known: bool) -> [u8; 2] {
    [PASSWORD_VERSION, u8::from(!known)]
}

/// Reads the first message.
pub fn greeting(bytes: &[u8]) -> Read<Greeting> {
    let Some(rest) = after(bytes, VERSION)? else {
        return Ok(None);
    };
    let Some((methods, _)) = counted(rest) else {
        return Ok(None);
    };
    let greeting = Greeting {
        nothing: methods.contains(&NOTHING),
        password: methods.contains(&PASSWORD),
    };
    Ok(Some((greeting, 2 + methods.len())))
}

/// Reads name and password.
pub fn credentials(bytes: &[u8]) -> Read<Credentials> {
    let Some(rest) = after(bytes, PASSWORD_VERSION)? else {
        return Ok(None);
    };
    let Some((name, rest)) = counted(rest) else {
        return Ok(None);
    };
    let Some((password, _)) = counted(rest) else {
        return Ok(None);
    };
    let length = 3 + name.len() + password.len();
    let (name, password) = (name.to_vec(), password.to_vec());
    Ok(Some((Credentials { name, password }, length)))
}

/// Reads a request. A bad one is known as soon as its bad byte is there.
pub fn request(bytes: &[u8]) -> Read<Request> {
    let Some(rest) = after(bytes, VERSION)? else {
        return Ok(None);
    };
    let [command, reserved, rest @ ..] = rest else {
        return Ok(None);
    };
    if *reserved != 0 {
        return Err(Fault::Reserved);
    }
    let command = match command {
        1 => Command::Connect,
        2 => Command::Bind,
        3 => Command::UdpAssociate,
        other => Command::Other(*other),
    };
    let [kind, rest @ ..] = rest else {
        return Ok(None);
    };
    let read = match kind {
        1 => rest
            .split_first_chunk::<4>()
            .map(|(octets, rest)| (Asked::Address(Ipv4Addr::from(*octets).into()), rest)),
        3 => counted(rest).map(|(name, rest)| (Asked::Name(name.to_vec()), rest)),
        4 => rest
            .split_first_chunk::<16>()
            .map(|(octets, rest)| (Asked::Address(Ipv6Addr::from(*octets).into()), rest)),
        other => return Err(Fault::AddressType(*other)),
    };
    let Some((host, [high, low, rest @ ..])) = read else {
        return Ok(None);
    };
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Some((Request { command, host, port }, bytes.len() - rest.len())))
}

impl Request {
    /// Where to, in the one form in which destinations are compared.
    pub fn destination(&self) -> Result<Destination, Fault> {
        let bad = Fault::Destination;
        let host = match &self.host {
            Asked::Address(address) => Host::Address(address.to_canonical()),
            Asked::Name(bytes) => {
                let text = std::str::from_utf8(bytes)
                    .map_err(|_| bad("the name holds bytes that are no text".to_owned()))?;
                Host::parse(text).map_err(|fault| bad(fault.to_string()))?
            }
        };
        if self.port == 0 {
            return Err(bad("port 0 is no port".to_owned()));
        }
        Ok(Destination {
            host,
            port: self.port,
        })
    }
}

/// What follows the version.
fn after(bytes: &[u8], version: u8) -> Result<Option<&[u8]>, Fault> {
    match bytes {
        [] => Ok(None),
        [first, rest @ ..] if *first == version => Ok(Some(rest)),
        [other, ..] => Err(Fault::Version(*other)),
    }
}

/// A field that begins with its length, and what follows it.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONNECT: &[u8] = b"\x05\x01\x00\x03\x0cAllowed.Test\x01\xbb";

    #[test]
    fn a_name_is_asked_for_in_its_one_form() {
        let (request, length) = request(CONNECT).unwrap().unwrap();
        assert_eq!((request.command, length), (Command::Connect, CONNECT.len()));
        assert_eq!(
            request.destination(),
            Ok(Destination {
                host: Host::Name("allowed.test".into()),
                port: 443
            })
        );
    }

    #[test]
    fn a_mapped_address_is_the_plain_one() {
        let mut bytes = b"\x05\x01\x00\x04".to_vec();
        bytes.extend("::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend([0, 80]);
        let (request, _) = request(&bytes).unwrap().unwrap();
        let right = Host::Address("192.0.2.1".parse().unwrap());
        assert_eq!(request.destination().unwrap().host, right);
    }

    #[test]
    fn what_is_wrong_is_known_at_its_first_byte() {
        assert_eq!(greeting(b"\x04"), Err(Fault::Version(4)));
        assert_eq!(request(b"\x05\x01\x01"), Err(Fault::Reserved));
        let fault = request(b"\x05\x01\x00\x09").unwrap_err();
        assert_eq!(
            (fault.clone(), fault.reply()),
            (Fault::AddressType(9), Reply::AddressTypeUnsupported)
        );
    }

    #[test]
    fn no_message_is_whole_before_its_last_byte() {
        let greeted = b"\x05\x02\x00\x02".as_slice();
        let said = b"\x01\x03ada\x02pw".as_slice();
        for end in 0..greeted.len() {
            assert_eq!(greeting(&greeted[..end]), Ok(None));
        }
        for end in 0..said.len() {
            assert_eq!(credentials(&said[..end]), Ok(None));
        }
        for end in 0..CONNECT.len() {
            assert_eq!(request(&CONNECT[..end]), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn what_comes_later_changes_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..40), more in proptest::collection::vec(any::<u8>(), 0..40)) {
            let all = [bytes.clone(), more].concat();
            if let Ok(Some((first, length))) = request(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert_eq!(request(&all), Ok(Some((first, length))));
            }
        }
    }
}
