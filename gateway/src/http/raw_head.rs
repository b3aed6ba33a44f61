//! A request's head as it came, kept until hyper has read it: hyper takes off a `Content-Length` that stands beside a
//! `Transfer-Encoding`, which two readers could read differently, so that only the bytes show it. Pure.
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use memchr::memmem;

/// The bytes of one head.
#[derive(Debug, Default)]
pub struct RawHead {
    bytes: Vec<u8>,
    whole: bool,
}

impl RawHead {
    /// Takes in what came while no request was in flight; no more than `most` bytes are kept. Where the head ends in this piece,
    /// what is behind it.
    pub fn push<'a>(&mut self, piece: &'a [u8], most: usize) -> Option<&'a [u8]> {
        if self.whole {
            return None;
        }
        let piece = match self.bytes.is_empty() {
            // Empty lines before a request are read over (RFC 9112 section 2.2).
            true => piece.trim_ascii_start(),
            false => piece,
        };
        let known = self.bytes.len();
        let before = known.saturating_sub(3);
        let room = most.saturating_sub(known).min(piece.len());
        self.bytes.extend_from_slice(&piece[..room]);
        let end = before + memmem::find(&self.bytes[before..], b"\r\n\r\n")?;
        self.bytes.truncate(end);
        self.whole = true;
        Some(&piece[end + 4 - known..])
    }

    /// Whether a body of chunks follows, if the request is served at all.
    pub fn is_coded(&self) -> bool {
        self.has_field(TRANSFER_ENCODING.as_str())
    }

    /// What makes the framing of a request with this head doubtful. To be asked once for each request that was read.
    pub fn doubt(self, parts: &Parts) -> Option<&'static str> {
        if !parts.headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        let (method, uri) = (parts.method.as_str(), &parts.uri);
        let target = match (uri.scheme(), uri.path_and_query()) {
            (None, Some(target)) => target.to_string(),
            _ => uri.to_string(),
        };
        let begins = self
            .bytes
            .strip_prefix(method.as_bytes())
            .and_then(|rest| rest.strip_prefix(b" "));
        if !self.whole || !begins.is_some_and(|rest| rest.starts_with(target.as_bytes())) {
            return Some(
                "a request with `Transfer-Encoding` came before the one ahead of it had its answer; send it after that",
            );
        }
        self.has_field(CONTENT_LENGTH.as_str())
            .then_some("`Content-Length` and `Transfer-Encoding` stand together")
    }

    fn has_field(&self, name: &str) -> bool {
        self.bytes.split(|byte| *byte == b'\n').any(|line| {
            line.split_at_checked(name.len()).is_some_and(|(begins, rest)| {
                begins.eq_ignore_ascii_case(name.as_bytes()) && rest.trim_ascii_start().starts_with(b":")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn doubt(pieces: &[&str], target: &str) -> Option<&'static str> {
        let mut head = RawHead::default();
        for piece in pieces {
            head.push(piece.as_bytes(), 1000);
        }
        let request = Request::post(target)
            .header("transfer-encoding", "chunked")
            .body(())
            .unwrap();
        head.doubt(&request.into_parts().0)
    }

    #[test]
    fn a_length_beside_a_coding_is_seen_wherever_it_stands() {
        for head in [
            "POST /a?b HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\r\nPOST /a?b HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-LENGTH:4\r\n\r\nbody",
        ] {
            for cut in 1..head.len() - 1 {
                let (one, two) = head.split_at(cut);
                assert!(
                    doubt(&[one, two], "/a?b").is_some_and(|doubt| doubt.contains("together")),
                    "{cut}"
                );
            }
        }
    }

    #[test]
    fn what_is_behind_the_head_is_handed_back() {
        let whole = "\r\nPOST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello";
        for cut in 0..whole.len() - 8 {
            let mut head = RawHead::default();
            let (one, two) = whole.split_at(cut);
            assert_eq!(head.push(one.as_bytes(), 1000), None, "{cut}");
            assert_eq!(head.push(two.as_bytes(), 1000), Some(&b"5\r\nhello"[..]), "{cut}");
            assert!(head.is_coded());
        }
    }

    #[test]
    fn a_length_in_the_body_or_in_a_value_is_none() {
        let head = "POST /a HTTP/1.1\r\nX: Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nContent-Length: 4\r\n";
        assert_eq!(doubt(&[head], "/a"), None);
        let absolute = "POST http://a.test/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(doubt(&[absolute], "http://a.test/x"), None);
    }

    #[test]
    fn a_coded_request_whose_head_was_not_seen_alone_is_doubtful() {
        assert!(doubt(&[], "/a").is_some());
        assert!(doubt(&["rest of a body\r\nPOST /a HTTP/1.1\r\n\r\n"], "/a").is_some());
    }
}
