//! The first bytes of a connection: which protocol they begin, without taking them. Pure.

/// Bytes that are looked at, at most; a ClientHello beyond this is refused.
pub const LOOK_BYTES: usize = 32 * 1024;

/// The HTTP/2 connection preface (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Longest method that is taken for HTTP.
const METHOD_BYTES: usize = 32;

/// Extension of Encrypted Client Hello (RFC 9849 section 5).
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// What the first bytes begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// A TLS ClientHello.
    Tls(ClientHello),
    /// An HTTP/1.x request line.
    Http,
    /// HTTP/2 with prior knowledge.
    Http2Preface,
    /// An SSH identification string (RFC 4253 section 4.2).
    Ssh,
    /// The first message of a PostgreSQL client (its documentation, 55.2): encryption, start-up of version 3, cancel.
    Postgres,
    /// Something else; the text says what is known of it.
    Unknown(&'static str),
    /// Not enough yet.
    Incomplete,
}

/// What a ClientHello says before anything is answered (RFC 8446 section 4.1.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHello {
    /// Host name of the `server_name` extension as sent (RFC 6066 section 3); bytes that are not UTF-8 are replaced.
    pub server_name: Option<String>,
    /// ALPN offers in order (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// Whether another name may be hidden inside (Encrypted Client Hello, RFC 9849). Browsers send the extension always, mostly
    /// empty of meaning, and nobody in between can tell.
    pub ech: bool,
}

/// Looks at the first bytes. Never fails: what is not understood is `Unknown`.
pub fn sniff(bytes: &[u8]) -> Protocol {
    match bytes.first() {
        None => Protocol::Incomplete,
        Some(0x16) => match client_hello(bytes) {
            Ok(hello) => Protocol::Tls(hello),
            Err(Fault::Short) if bytes.len() < LOOK_BYTES => Protocol::Incomplete,
            Err(Fault::Short) => Protocol::Unknown("a TLS ClientHello that does not end"),
            Err(Fault::Broken) => Protocol::Unknown("a malformed TLS ClientHello"),
        },
        Some(0) => postgres(bytes),
        Some(_) => plain(bytes),
    }
}

fn plain(bytes: &[u8]) -> Protocol {
    if bytes.starts_with(PREFACE) {
        return Protocol::Http2Preface;
    }
    if PREFACE.starts_with(bytes) {
        return Protocol::Incomplete;
    }
    if bytes.starts_with(b"SSH-") {
        return Protocol::Ssh;
    }
    if b"SSH-".starts_with(bytes) {
        return Protocol::Incomplete;
    }
    let token = bytes.iter().take_while(|byte| is_method_byte(**byte)).count();
    match bytes.get(token) {
        Some(b' ') if token > 0 && token <= METHOD_BYTES => Protocol::Http,
        // Robustness of RFC 9112 section 2.2: empty lines before the request line.
        Some(b'\r' | b'\n') if token == 0 => Protocol::Http,
        None if token <= METHOD_BYTES => Protocol::Incomplete,
        _ => Protocol::Unknown(what(bytes)),
    }
}

/// Length and code of a PostgreSQL client's first message.
fn postgres(bytes: &[u8]) -> Protocol {
    match bytes {
        [0] | [0, 0] | [0, 0, _] | [0, 0, _, _] => Protocol::Incomplete,
        [0, 0, _, _, 0, 3, ..] | [0, 0, _, _, 4, 210, 22, 46..=48, ..] => Protocol::Postgres,
        [0, 0, _, _, 0 | 4] | [0, 0, _, _, 4, 210] | [0, 0, _, _, 4, 210, 22] => Protocol::Incomplete,
        _ => Protocol::Unknown(what(bytes)),
    }
}

/// Names a few protocols for the log.
fn what(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x80, ..] => "an SSL 2 ClientHello",
        [0x00, 0x0c | 0x0e, ..] => "something like AMQP or MQTT",
        _ => "bytes of an unknown protocol",
    }
}

/// Token characters that methods in use consist of (RFC 9110 section 9.1; letters, digits, `-`, `_`).
fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

enum Fault {
    Short,
    Broken,
}

/// Reads a ClientHello that may be cut over several records.
fn client_hello(mut bytes: &[u8]) -> Result<ClientHello, Fault> {
    let mut handshake = Vec::new();
    loop {
        if let Some(body) = whole_message(&handshake)? {
            return parse_hello(body).ok_or(Fault::Broken);
        }
        let [kind, major, _, high, low, rest @ ..] = bytes else {
            return Err(Fault::Short);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        // RFC 8446 section 5.1: at most 2^14 bytes, never empty for handshake records.
        if *kind != 0x16 || *major != 3 || length == 0 || length > 16_384 {
            return Err(Fault::Broken);
        }
        handshake.extend_from_slice(rest.get(..length.min(rest.len())).unwrap_or_default());
        match rest.get(length..) {
            Some(next) => bytes = next,
            None => {
                return match whole_message(&handshake)? {
                    Some(body) => parse_hello(body).ok_or(Fault::Broken),
                    None => Err(Fault::Short),
                };
            }
        }
    }
}

/// The ClientHello's body once it is whole.
fn whole_message(handshake: &[u8]) -> Result<Option<&[u8]>, Fault> {
    match handshake {
        [] => Ok(None),
        [1, a, b, c, rest @ ..] => {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if length > LOOK_BYTES {
                return Err(Fault::Broken);
            }
            Ok(rest.get(..length))
        }
        [1, ..] => Ok(None),
        _ => Err(Fault::Broken),
    }
}

fn parse_hello(body: &[u8]) -> Option<ClientHello> {
    let mut rest = body;
    take(&mut rest, 2 + 32)?;
    vector8(&mut rest)?;
    vector16(&mut rest)?;
    vector8(&mut rest)?;
    let mut hello = ClientHello::default();
    if rest.is_empty() {
        return Some(hello);
    }
    let mut extensions = vector16(&mut rest)?;
    while !extensions.is_empty() {
        let kind = number16(&mut extensions)?;
        let data = vector16(&mut extensions)?;
        match kind {
            0 => hello.server_name = Some(server_name(data)?),
            16 => hello.alpn = alpn(data)?,
            ENCRYPTED_CLIENT_HELLO => hello.ech = true,
            _ => {}
        }
    }
    Some(hello)
}

fn server_name(mut data: &[u8]) -> Option<String> {
    let mut list = vector16(&mut data)?;
    let [kind] = take(&mut list, 1)? else { return None };
    let name = vector16(&mut list)?;
    // RFC 6066: one name of each type, and `host_name` is the only type.
    (*kind == 0 && list.is_empty() && data.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

fn alpn(mut data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut list = vector16(&mut data)?;
    let mut offers = Vec::new();
    while !list.is_empty() {
        offers.push(vector8(&mut list)?.to_vec());
    }
    Some(offers)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(head)
}

fn number16(rest: &mut &[u8]) -> Option<u16> {
    let head = take(rest, 2)?;
    Some(u16::from_be_bytes([*head.first()?, *head.get(1)?]))
}

fn vector8<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = usize::from(*take(rest, 1)?.first()?);
    take(rest, count)
}

fn vector16<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = usize::from(number16(rest)?);
    take(rest, count)
}

#[cfg(test)]
mod tests;
