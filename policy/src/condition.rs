//! Conditions on header fields and query parameters, read without copying them.
use crate::glob::{Star, fits};
use std::str::from_utf8;

/// A header field or query parameter, and the globs of which one must match its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    No,
    /// A server may read it in another way: it stands there twice, or cannot be decoded.
    Unclear,
}

impl Condition {
    /// On the fields of a request, by lower-case name.
    pub(crate) fn held_by_headers(&self, headers: &[(String, String)]) -> Held {
        let mut found = headers.iter().filter(|(name, _)| *name == self.name);
        match (found.next(), found.next()) {
            (None, _) => Held::No,
            (Some((_, value)), None) => self.fits(value.bytes()),
            (Some(_), Some(_)) => Held::Unclear,
        }
    }

    /// On a query as it is sent (`application/x-www-form-urlencoded`).
    pub(crate) fn held_by_query(&self, query: Option<&str>) -> Held {
        let mut found = None;
        for (name, value) in parameters(query.unwrap_or_default()) {
            if !is_clear(name) || !is_clear(value) {
                return Held::Unclear;
            }
            if !same_but_for_case(name, &self.name) {
                continue;
            }
            if found.is_some() || !decoded(name).eq(self.name.bytes()) {
                return Held::Unclear;
            }
            found = Some(value);
        }
        match found {
            Some(value) => self.fits(decoded(value)),
            None => Held::No,
        }
    }

    fn fits(&self, value: impl Iterator<Item = u8> + Clone) -> Held {
        let fits = self
            .values
            .iter()
            .any(|pattern| fits(pattern, value.clone(), Star::Any));
        match fits {
            true => Held::Yes,
            false => Held::No,
        }
    }
}

/// Names and values as they are sent.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Servers do not agree on whether names have case.
fn same_but_for_case(name: &str, own: &str) -> bool {
    decoded(name)
        .map(|b| b.to_ascii_lowercase())
        .eq(own.bytes().map(|b| b.to_ascii_lowercase()))
}

/// Whether all servers decode this alike: whole escapes of valid UTF-8, no zero byte, and no `;`, which some take for `&`.
fn is_clear(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    let whole = bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => hex(bytes, at + 1).zip(hex(bytes, at + 2)).is_some(),
        b';' | 0 => false,
        _ => true,
    });
    whole && is_utf8(decoded(raw))
}

/// Whether these bytes are UTF-8 without a zero byte, a character at a time.
fn is_utf8(mut bytes: impl Iterator<Item = u8>) -> bool {
    while let Some(first) = bytes.next() {
        let more = match first {
            0 => return false,
            0x01..=0x7f => continue,
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => return false,
        };
        let mut character = [first, 0, 0, 0];
        for slot in character.iter_mut().skip(1).take(more) {
            let Some(byte) = bytes.next() else { return false };
            *slot = byte;
        }
        if character.get(..=more).is_none_or(|all| from_utf8(all).is_err()) {
            return false;
        }
    }
    true
}

/// Escapes and `+` decoded; a broken escape stays as it is.
fn decoded(raw: &str) -> impl Iterator<Item = u8> + Clone + '_ {
    let bytes = raw.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *bytes.get(at)?;
        if byte == b'%'
            && let Some((high, low)) = hex(bytes, at + 1).zip(hex(bytes, at + 2))
        {
            at += 3;
            return Some(high * 16 + low);
        }
        at += 1;
        Some(if byte == b'+' { b' ' } else { byte })
    })
}

fn hex(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = char::from(*bytes.get(at)?).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn condition(name: &str, value: &str) -> Condition {
        Condition {
            name: name.into(),
            values: vec![value.into()],
        }
    }

    #[test]
    fn a_parameter_holds_once_and_decoded() {
        let service = condition("service", "git-*-pack");
        for (query, held) in [
            ("service=git-upload-pack", Held::Yes),
            ("a=b&service=git%2Dupload%2dpack&c", Held::Yes),
            ("%73ervice=git-upload-pack", Held::Yes),
            ("", Held::No),
            ("service", Held::No),
            ("services=git-upload-pack", Held::No),
            ("service=other", Held::No),
            ("service=git-upload-pack&service=git-upload-pack", Held::Unclear),
            ("service=git-upload-pack&Service=x", Held::Unclear),
            ("SERVICE=git-upload-pack", Held::Unclear),
            ("service=git-upload-pack&x=%zz", Held::Unclear),
            ("service=git-upload-pack;x=1", Held::Unclear),
            ("x=%c0%af&service=git-upload-pack", Held::Unclear),
            ("service=git-upload-pack%00", Held::Unclear),
        ] {
            assert_eq!(service.held_by_query(Some(query)), held, "{query}");
        }
        assert_eq!(service.held_by_query(None), Held::No);
        assert_eq!(condition("q", "a b").held_by_query(Some("q=a+b")), Held::Yes);
        assert_eq!(
            condition("käse", "ä").held_by_query(Some("k%C3%A4se=%C3%A4")),
            Held::Yes
        );
    }

    #[test]
    fn a_field_holds_once() {
        let fields = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect()
        };
        let accept = condition("accept", "application/*");
        let one = ("accept", "application/json");
        assert_eq!(accept.held_by_headers(&fields(&[one])), Held::Yes);
        assert_eq!(
            accept.held_by_headers(&fields(&[("accept", "text/html")])),
            Held::No
        );
        assert_eq!(accept.held_by_headers(&fields(&[])), Held::No);
        assert_eq!(accept.held_by_headers(&fields(&[one, one])), Held::Unclear);
    }

    proptest! {
        #[test]
        fn decoding_agrees_with_whole_texts(raw in "(%[0-9a-fA-F]{2}|[a-z+;=&]|%){0,12}") {
            let all: Vec<u8> = decoded(&raw).collect();
            prop_assert_eq!(is_utf8(all.iter().copied()), from_utf8(&all).is_ok() && !all.contains(&0));
            let _ = condition("a", "*").held_by_query(Some(&raw));
        }
    }
}
