//! Reading where in a request a credential may stand.
use super::reader::Reader;
use crate::Place;
use crate::diagnostic::{At, Position};
use crate::host::shown;

/// Headers that frame or route a request: no credential stands there.
const RESERVED_HEADERS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "keep-alive",
];

/// `bearer`, `basic`, `header:NAME`, `query:NAME`, `json:/pointer`, `form:NAME`, `path`, `websocket:/pointer`, `ssh-key`, `password`, `client-certificate`, `aws-sigv4`.
pub(super) fn read_place(word: &At<String>, reader: &mut Reader<'_>) -> Option<Place> {
    let (kind, name) = match word.value.split_once(':') {
        Some((kind, name)) => (kind, Some(name)),
        None => (word.value.as_str(), None),
    };
    match (kind, name) {
        ("bearer", None) => Some(Place::Bearer),
        ("basic", None) => Some(Place::Basic),
        ("header", Some(name)) => header_name(name, &word.at, reader).map(Place::Header),
        ("query", Some(name)) if !name.is_empty() => Some(Place::Query(name.to_owned())),
        ("form", Some(name)) if !name.is_empty() => Some(Place::Form(name.to_owned())),
        ("json", Some(pointer)) => json_pointer(pointer, &word.at, reader).map(Place::Json),
        ("websocket", Some(pointer)) => json_pointer(pointer, &word.at, reader).map(Place::WebSocket),
        ("path", None) => Some(Place::Path),
        ("ssh-key", None) => Some(Place::SshKey),
        ("password", None) => Some(Place::Password),
        ("client-certificate", None) => Some(Place::ClientCertificate),
        ("aws-sigv4", None) => Some(Place::AwsSigv4),
        _ => {
            let message = format!("`{}` is not a place in a request", shown(&word.value));
            reader.push(
                word.at
                    .error(message)
                    .hint(
                        "it is one of `bearer`, `basic`, `header:NAME`, `query:NAME`, `json:/POINTER`, `form:NAME`, `path`, `websocket:/POINTER`, `ssh-key`, \
                         `password`, `client-certificate`, `aws-sigv4`",
                    ),
            );
            None
        }
    }
}

/// The name of a header that carries a credential, in lower case.
pub(super) fn header_name(name: &str, at: &Position, reader: &mut Reader<'_>) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let token = !lower.is_empty()
        && lower
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !token {
        reader.push(at.error(format!("`{}` is not the name of a header", shown(name))));
        return None;
    }
    if RESERVED_HEADERS.contains(&lower.as_str()) {
        reader.push(at.error(format!("header `{lower}` carries no credential")));
        return None;
    }
    Some(lower)
}

/// A JSON pointer (RFC 6901) to a string: `/` before each key, in which `~0` stands for `~` and `~1` for `/`.
pub(super) fn json_pointer(pointer: &str, at: &Position, reader: &mut Reader<'_>) -> Option<String> {
    let escapes = pointer
        .split('~')
        .skip(1)
        .all(|after| after.starts_with(['0', '1']));
    if pointer.starts_with('/') && escapes {
        return Some(pointer.to_owned());
    }
    let message = format!("`{}` is no JSON pointer", shown(pointer));
    reader.push(
        at.error(message)
            .hint("write for example `json:/auth/token` (RFC 6901)"),
    );
    None
}
