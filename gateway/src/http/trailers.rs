//! Trailers on their way: nothing in them frames, routes or authenticates a message (RFC 9110 section 6.5.1). Pure.
use crate::secret::{Leak, SessionSecrets};
use bytes::BytesMut;
use http::{HeaderMap, HeaderName};

/// What must stand in a head, or nowhere.
const HEAD_ONLY: [&str; 20] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// A field that must not stand in trailers.
pub fn misplaced(trailers: &HeaderMap) -> Option<&HeaderName> {
    trailers.keys().find(|name| HEAD_ONLY.contains(&name.as_str()))
}

/// Takes off what must not stand in trailers.
pub fn strip(trailers: &mut HeaderMap) {
    for name in HEAD_ONLY {
        trailers.remove(name);
    }
}

/// Neither a credential's value nor a placeholder leaves in a trailer, where no binding reaches.
pub fn guard(trailers: &HeaderMap, secrets: &SessionSecrets) -> Result<(), Leak> {
    let Some(mut guard) = secrets.body_guard() else {
        return Ok(());
    };
    let mut seen = BytesMut::new();
    for (name, value) in trailers {
        for text in [name.as_str().as_bytes(), value.as_bytes()] {
            guard.push(text, &mut seen)?;
            guard.push(b"\n", &mut seen)?;
        }
    }
    guard.finish(&mut seen)?;
    match guard.placeholders_seen().first() {
        None => Ok(()),
        Some(name) => Err(Leak::new(
            name,
            format!(
                "the placeholder of credential `{name}` stands in a trailer, where it cannot be replaced; send it in the place it \
                 is bound to"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_frames_a_message_is_no_trailer() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        assert_eq!(misplaced(&trailers), None);
        trailers.insert("content-length", HeaderValue::from_static("5"));
        assert_eq!(
            misplaced(&trailers).map(HeaderName::as_str),
            Some("content-length")
        );
        strip(&mut trailers);
        assert_eq!(trailers.len(), 1);
    }
}
