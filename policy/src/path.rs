//! Request paths in the one form that is decided and sent.
use std::borrow::Cow;
use std::fmt::Write as _;

/// Longest path that is looked at, in bytes.
const PATH_LIMIT: usize = 64 * 1024;

/// A path after RFC 3986 section 6 normalisation. What is decided is what is sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalPath {
    text: String,
    doubts: Doubts,
}

/// In what way two servers may read a path differently: the first of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Doubts {
    first: Option<&'static str>,
    /// Other than an encoded slash that stands between two names.
    beyond_slashes: Option<&'static str>,
}

impl Doubts {
    /// Keeps the first reason.
    fn note(&mut self, reason: &'static str) {
        self.first.get_or_insert(reason);
        self.beyond_slashes.get_or_insert(reason);
    }

    fn note_slash(&mut self) {
        self.first.get_or_insert("it has an encoded slash (`%2F`)");
    }
}

/// Why a path is malformed (answered with 400).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path is malformed: {0}")]
pub struct PathFault(pub String);

impl CanonicalPath {
    /// Normalises the path of a request target (no query, no fragment).
    ///
    /// Unreserved octets are decoded once, other escapes get upper-case digits, octets that may not stand in a path are
    /// escaped, and dot segments are resolved (RFC 3986 sections 5.2.4 and 6.2.2). The empty path is `/`.
    pub fn parse(raw: &str) -> Result<Self, PathFault> {
        if raw.len() > PATH_LIMIT {
            return Err(PathFault(format!("it is longer than {PATH_LIMIT} bytes")));
        }
        if raw.is_empty() {
            return Ok(Self {
                text: "/".into(),
                doubts: Doubts::default(),
            });
        }
        let body = raw
            .strip_prefix('/')
            .ok_or_else(|| PathFault("it does not begin with `/`".into()))?;
        let mut doubts = Doubts::default();
        let mut segments: Vec<String> = Vec::new();
        let mut parts = body.split('/').peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            if part.is_empty() && !last {
                doubts.note("it has an empty segment (`//`)");
            }
            let segment = normalise_segment(part, &mut doubts)?;
            match segment.as_str() {
                "." if last => segments.push(String::new()),
                "." => {}
                ".." => {
                    segments
                        .pop()
                        .ok_or_else(|| PathFault("it leads above the root".into()))?;
                    if last {
                        segments.push(String::new());
                    }
                }
                _ => segments.push(segment),
            }
        }
        let mut text = String::with_capacity(raw.len());
        for segment in &segments {
            text.push('/');
            text.push_str(segment);
        }
        if text.is_empty() {
            text.push('/');
        }
        Ok(Self { text, doubts })
    }

    /// The canonical text, beginning with `/`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Why two servers may read this path differently, if they may: no rule with paths allows it then.
    pub fn ambiguity(&self) -> Option<&str> {
        self.doubts.first
    }

    /// The same where an encoded slash is taken as a part of its segment. One beside a dot segment or an empty one stays in doubt.
    pub(crate) fn ambiguity_beyond_slashes(&self) -> Option<&'static str> {
        self.doubts.beyond_slashes
    }
}

/// Escapes what does not stand for itself in a path, so that a raw text can be compared with canonical ones.
pub(crate) fn escaped(raw: &str) -> Cow<'_, str> {
    let plain = |byte: u8| stands_in_path(byte) && byte != b';' || byte == b'/';
    if raw.bytes().all(plain) {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len() + 8);
    for byte in raw.bytes() {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => push_escaped(&mut out, byte),
        }
    }
    Cow::Owned(out)
}

/// One segment with its escapes in canonical form, and what is ambiguous about it.
fn normalise_segment(segment: &str, doubts: &mut Doubts) -> Result<String, PathFault> {
    let bytes = segment.as_bytes();
    let mut out = String::with_capacity(segment.len());
    let mut decoded: Vec<u8> = Vec::with_capacity(segment.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let octet = match byte {
            b'%' => {
                let octet = escape_at(bytes, at)?;
                at += 2;
                note_escaped(octet, doubts);
                if is_unreserved(octet) {
                    out.push(char::from(octet))
                } else {
                    push_escaped(&mut out, octet)
                }
                octet
            }
            b'?' | b'#' => {
                return Err(PathFault(format!(
                    "`{}` does not belong in a path",
                    char::from(byte)
                )));
            }
            0..=0x20 | 0x7f => return Err(PathFault("it has a space or control character".into())),
            _ => {
                note_raw(byte, doubts);
                if stands_in_path(byte) {
                    out.push(char::from(byte))
                } else {
                    push_escaped(&mut out, byte)
                }
                byte
            }
        };
        decoded.push(octet);
    }
    if std::str::from_utf8(&decoded).is_err() {
        doubts.note("its escapes are not valid UTF-8");
    }
    if decoded.contains(&b'/')
        && decoded
            .split(|byte| *byte == b'/')
            .any(|part| matches!(part, b"" | b"." | b".."))
    {
        doubts.note("it has an encoded slash beside an empty or dot segment");
    }
    Ok(out)
}

/// The octet of the escape whose digits begin at `at`.
fn escape_at(bytes: &[u8], at: usize) -> Result<u8, PathFault> {
    let digit = |index: usize| bytes.get(index).and_then(|b| char::from(*b).to_digit(16));
    match (digit(at), digit(at + 1)) {
        (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
        _ => Err(PathFault("`%` is not followed by two hexadecimal digits".into())),
    }
}

fn note_escaped(octet: u8, doubts: &mut Doubts) {
    match octet {
        b'/' => doubts.note_slash(),
        b'\\' => doubts.note("it has an encoded backslash (`%5C`)"),
        0 => doubts.note("it has an encoded zero byte (`%00`)"),
        0x01..=0x1f | 0x7f => doubts.note("it has an encoded control character"),
        _ => {}
    }
}

fn note_raw(byte: u8, doubts: &mut Doubts) {
    match byte {
        b'\\' => doubts.note("it has a backslash"),
        b';' => doubts.note("it has parameters (`;`)"),
        _ => {}
    }
}

fn push_escaped(out: &mut String, octet: u8) {
    // Writing into a `String` cannot fail.
    let _ = write!(out, "%{octet:02X}");
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// `pchar` of RFC 3986 section 3.3, without the escape sign.
fn stands_in_path(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(raw: &str) -> String {
        CanonicalPath::parse(raw).unwrap().as_str().to_owned()
    }

    #[test]
    fn dot_segments_are_resolved_also_when_escaped() {
        for (raw, expected) in [
            ("/public/../secret", "/secret"),
            ("/public/%2e%2e/secret", "/secret"),
            ("/public/%2E./secret", "/secret"),
            ("/public/./admin/x", "/public/admin/x"),
            ("/public/a/../admin/x", "/public/admin/x"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/", "/"),
            ("", "/"),
            ("/a/", "/a/"),
            ("/...", "/..."),
        ] {
            assert_eq!(canonical(raw), expected, "{raw}");
            assert_eq!(CanonicalPath::parse(raw).unwrap().ambiguity(), None, "{raw}");
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(canonical("/public/%61dmin/x"), "/public/admin/x");
        assert_eq!(
            canonical("/public/%252e%252e/secret"),
            "/public/%252e%252e/secret"
        );
        assert_eq!(canonical("/a%3fb%2a"), "/a%3Fb%2A");
        assert_eq!(canonical("/käse/{x}"), "/k%C3%A4se/%7Bx%7D");
        assert_eq!(canonical("/PUBLIC/a"), "/PUBLIC/a");
    }

    #[test]
    fn what_two_servers_may_read_differently_is_ambiguous() {
        for raw in [
            "/public//admin/x",
            "//public/x",
            "/public/admin;v=1/x",
            "/public%2fadmin/x",
            "/public\\admin\\x",
            "/public/%5cx",
            "/public/%00/x",
            "/public/%0d%0ax",
            "/%c0%ae%c0%ae/secret",
            "/@scope%2fname",
            "/a/..;/b",
        ] {
            assert!(CanonicalPath::parse(raw).unwrap().ambiguity().is_some(), "{raw}");
        }
    }

    #[test]
    fn an_encoded_slash_may_belong_to_its_segment_unless_more_is_in_doubt() {
        for (raw, clear) in [
            ("/@scope%2fname", true),
            ("/@scope%2Fname/-/name-1.0.tgz", true),
            ("/@scope%2f..%2fother", false),
            ("/@scope%2f%2e%2e%2fother", false),
            ("/@scope%2f.", false),
            ("/@scope%2f", false),
            ("/%2fname", false),
            ("/@scope%2f%2fname", false),
            ("/@scope%2fname;v=1", false),
            ("/@scope%2fname//x", false),
            ("/@scope%252f..", true),
        ] {
            let path = CanonicalPath::parse(raw).unwrap();
            assert_eq!(path.ambiguity_beyond_slashes().is_none(), clear, "{raw}");
        }
    }

    #[test]
    fn raw_texts_are_escaped_as_paths_are() {
        for raw in ["/refs/heads/agent/x", "/käse/100%/a;b", "/a#b?c"] {
            let canonical = escaped(raw);
            assert_eq!(
                CanonicalPath::parse(&canonical).unwrap().as_str(),
                canonical,
                "{raw}"
            );
        }
        assert_eq!(escaped("/100%/a;b"), "/100%25/a%3Bb");
    }

    #[test]
    fn malformed_paths_are_refused() {
        for raw in [
            "/..",
            "/a/../../b",
            "/%2e%2e/x",
            "x",
            "*",
            "/a b",
            "/a\0",
            "/%",
            "/%2",
            "/%zz",
            "/a?b",
            "/public/x#/../admin",
            "/%u002e",
        ] {
            assert!(CanonicalPath::parse(raw).is_err(), "{raw}");
        }
        assert!(CanonicalPath::parse(&"/a".repeat(40_000)).is_err());
    }

    proptest! {
        #[test]
        fn any_path_has_an_answer_and_its_form_is_stable(raw in "/?(.|[/.%2eEfF5cC;\\\\]){0,60}") {
            if let Ok(path) = CanonicalPath::parse(&raw) {
                prop_assert_eq!(canonical(path.as_str()), path.as_str());
                prop_assert!(path.as_str().starts_with('/'));
                prop_assert!(path.as_str().split('/').all(|s| s != "." && s != ".."));
            }
        }
    }
}
