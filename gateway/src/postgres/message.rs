//! PURE: the messages that the gateway itself reads and writes (PostgreSQL documentation, "Frontend/Backend Protocol", 55.7).
use bytes::{BufMut, BytesMut};
use std::fmt;

/// Longest start-up message, as PostgreSQL's own `MAX_STARTUP_PACKET_LENGTH`.
pub(super) const START_UP_BYTES: usize = 10_000;
/// Longest message that is read as a whole during a log-in, as PostgreSQL's `PG_MAX_AUTH_TOKEN_LENGTH`.
pub(super) const LOG_IN_BYTES: usize = 65_535;
/// Longest key of a cancel request (protocol 3.2).
const KEY_BYTES: usize = 256;
/// Names are cut by PostgreSQL beyond this; a longer one would be decided otherwise than it is used.
const NAME_BYTES: usize = 63;
/// Longest text of one field of an error.
const TEXT_BYTES: usize = 2000;

const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
/// Protocol 3.0, the one that is spoken upstream.
const VERSION: u32 = 3 << 16;

/// `SSLRequest`.
pub(super) const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum First {
    /// It wants TLS.
    Tls,
    /// It wants GSSAPI encryption.
    Gss,
    /// It wants the query of another connection stopped.
    Cancel(Key),
    /// It logs in.
    StartUp(StartUp),
}

/// What names a connection in a cancel request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Process id.
    pub(super) process: u32,
    /// Secret key: 4 bytes in protocol 3.0, up to 256 in 3.2.
    pub(super) secret: Vec<u8>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

/// A start-up message of protocol 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StartUp {
    /// Role.
    pub(super) user: String,
    /// Database; the role's name where none was named.
    pub(super) database: String,
    /// Settings besides, in order: names and values as they came.
    pub(super) settings: Vec<(String, Vec<u8>)>,
    /// Minor version, and the options of the protocol (`_pq_.`) that are not known here; to be negotiated down.
    pub(super) minor: u16,
    /// Names of those options.
    pub(super) unknown: Vec<String>,
}

/// Bytes that break the protocol, or say what is refused whatever the policy. The client's fault (or the upstream's).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub String);

fn malformed<T>(text: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(text.into()))
}

/// Reads a first message without its length.
pub(super) fn first(body: &[u8]) -> Result<First, Malformed> {
    let Some((code, rest)) = body.split_first_chunk::<4>() else {
        return malformed("the first message is too short");
    };
    match (u32::from_be_bytes(*code), rest) {
        (TLS, []) => Ok(First::Tls),
        (GSS, []) => Ok(First::Gss),
        (CANCEL, rest) => match rest.split_first_chunk::<4>() {
            Some((process, secret)) if (4..=KEY_BYTES).contains(&secret.len()) => Ok(First::Cancel(Key {
                process: u32::from_be_bytes(*process),
                secret: secret.to_vec(),
            })),
            _ => malformed("a cancel request of a wrong length"),
        },
        (version, rest) if version >> 16 == 3 => start_up(version as u16, rest).map(First::StartUp),
        (version, _) => malformed(format!(
            "version {}.{} of the protocol is not spoken here; use 3.0",
            version >> 16,
            version & 0xffff
        )),
    }
}

fn start_up(minor: u16, mut rest: &[u8]) -> Result<StartUp, Malformed> {
    let mut named: Vec<(String, Vec<u8>)> = Vec::new();
    let mut unknown = Vec::new();
    loop {
        let name = text(&mut rest)?;
        if name.is_empty() {
            break;
        }
        let Ok(name) = std::str::from_utf8(name) else {
            return malformed("the name of a start-up parameter is not UTF-8");
        };
        let value = text(&mut rest)?;
        if named.iter().any(|(known, _)| known == name) {
            return malformed(format!(
                "start-up parameter `{}` stands there twice",
                name.escape_debug()
            ));
        }
        if name.starts_with("_pq_.") {
            unknown.push(name.to_owned());
        }
        named.push((name.to_owned(), value.to_vec()));
    }
    if !rest.is_empty() {
        return malformed("something stands behind the start-up message");
    }
    let mut take = |wanted: &str| {
        let at = named.iter().position(|(name, _)| name == wanted)?;
        Some(named.remove(at).1)
    };
    let user = role_or_database("user", take("user").unwrap_or_default())?;
    let database = role_or_database("database", take("database").unwrap_or_default())?;
    if user.is_empty() {
        return malformed("the start-up message names no user");
    }
    if take("replication").is_some_and(|value| !is_false(&value)) {
        return malformed(
            "replication is not let through: it reads every database of the server, whatever the rule names; connect without it",
        );
    }
    named.retain(|(name, _)| !name.starts_with("_pq_."));
    Ok(StartUp {
        database: if database.is_empty() {
            user.clone()
        } else {
            database
        },
        user,
        settings: named,
        minor,
        unknown,
    })
}

/// A text up to its zero byte, which is taken too.
fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let Some(end) = rest.iter().position(|byte| *byte == 0) else {
        return malformed("the start-up message does not end where it should");
    };
    let (text, after) = rest.split_at(end);
    *rest = after.get(1..).unwrap_or_default();
    Ok(text)
}

fn role_or_database(what: &str, name: Vec<u8>) -> Result<String, Malformed> {
    match String::from_utf8(name) {
        Ok(name) if name.len() > NAME_BYTES => malformed(format!(
            "the {what} has more than {NAME_BYTES} bytes, and PostgreSQL would cut it"
        )),
        Ok(name) if name.chars().any(char::is_control) => {
            malformed(format!("the {what} has control characters"))
        }
        Ok(name) => Ok(name),
        Err(_) => malformed(format!("the {what} is not UTF-8")),
    }
}

/// PostgreSQL's spellings of false (`parse_bool`).
fn is_false(value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    let begins = |word: &[u8]| !lower.is_empty() && word.starts_with(&lower);
    begins(b"false") || begins(b"no") || (lower.len() > 1 && begins(b"off")) || lower == b"0"
}

impl StartUp {
    /// As it is sent upstream: protocol 3.0, without options of the protocol.
    pub(super) fn written(&self) -> BytesMut {
        let mut body = BytesMut::new();
        body.put_u32(VERSION);
        let names = [
            ("user", self.user.as_bytes()),
            ("database", self.database.as_bytes()),
        ];
        let settings = self
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()));
        for (name, value) in names.into_iter().chain(settings) {
            for text in [name.as_bytes(), value] {
                body.put_slice(text);
                body.put_u8(0);
            }
        }
        body.put_u8(0);
        behind_length(&body)
    }

    /// `NegotiateProtocolVersion`, where the client asked for more than 3.0.
    pub(super) fn negotiated(&self) -> Option<BytesMut> {
        if self.minor == 0 && self.unknown.is_empty() {
            return None;
        }
        let mut body = BytesMut::new();
        body.put_u32(VERSION);
        body.put_u32(self.unknown.len() as u32);
        for name in &self.unknown {
            body.put_slice(name.as_bytes());
            body.put_u8(0);
        }
        Some(message(b'v', &body))
    }
}

/// A cancel request.
pub(super) fn cancel(key: &Key) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_u32(CANCEL);
    body.put_u32(key.process);
    body.put_slice(&key.secret);
    behind_length(&body)
}

/// `BackendKeyData`, read.
pub(super) fn key_data(body: &[u8]) -> Result<Key, Malformed> {
    match body.split_first_chunk::<4>() {
        Some((process, secret)) if (4..=KEY_BYTES).contains(&secret.len()) => Ok(Key {
            process: u32::from_be_bytes(*process),
            secret: secret.to_vec(),
        }),
        _ => malformed("a key of a wrong length"),
    }
}

/// `BackendKeyData`, written.
pub(super) fn key_message(key: &Key) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_u32(key.process);
    body.put_slice(&key.secret);
    message(b'K', &body)
}

/// A message with its kind and length.
pub(super) fn message(kind: u8, body: &[u8]) -> BytesMut {
    let mut whole = BytesMut::with_capacity(5 + body.len());
    head(kind, body.len(), &mut whole);
    whole.put_slice(body);
    whole
}

/// Kind and length of a message.
pub(super) fn head(kind: u8, body: usize, out: &mut BytesMut) {
    out.put_u8(kind);
    out.put_u32(4 + body as u32);
}

/// An authentication message (`R`).
pub(super) fn authentication(code: u32, data: &[u8]) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_u32(code);
    body.put_slice(data);
    message(b'R', &body)
}

fn behind_length(body: &[u8]) -> BytesMut {
    let mut whole = BytesMut::with_capacity(4 + body.len());
    whole.put_u32(4 + body.len() as u32);
    whole.put_slice(body);
    whole
}

/// The fields of an error that a client prints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// SQLSTATE.
    pub(super) code: String,
    /// What is wrong.
    pub(super) message: String,
    /// More of it.
    pub(super) detail: Option<String>,
    /// What to do.
    pub(super) hint: Option<String>,
}

/// `ErrorResponse` of severity `FATAL`.
pub(super) fn error(told: &Told) -> BytesMut {
    let mut body = BytesMut::new();
    let mut field = |kind: u8, text: &str| {
        body.put_u8(kind);
        let printable = text.chars().filter(|letter| !letter.is_control());
        let mut left = TEXT_BYTES;
        for letter in printable {
            let Some(rest) = left.checked_sub(letter.len_utf8()) else {
                break;
            };
            left = rest;
            body.put_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
        body.put_u8(0);
    };
    field(b'S', "FATAL");
    field(b'V', "FATAL");
    field(b'C', &told.code);
    field(b'M', &told.message);
    if let Some(detail) = &told.detail {
        field(b'D', detail);
    }
    if let Some(hint) = &told.hint {
        field(b'H', hint);
    }
    body.put_u8(0);
    message(b'E', &body)
}

/// Reads an upstream's `ErrorResponse`.
pub(super) fn read_error(body: &[u8]) -> Told {
    let mut told = Told::default();
    for field in body.split(|byte| *byte == 0) {
        let Some((kind, text)) = field.split_first() else {
            continue;
        };
        let text = String::from_utf8_lossy(text).into_owned();
        match kind {
            b'C' => told.code = text,
            b'M' => told.message = text,
            b'D' => told.detail = Some(text),
            b'H' => told.hint = Some(text),
            _ => {}
        }
    }
    told
}

#[cfg(test)]
mod tests;
