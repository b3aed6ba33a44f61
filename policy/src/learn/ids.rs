//! Which parts of a path name one thing among many: numbers, UUIDs, hashes, dates, versions, random tokens.

/// The pattern of a path in which ids, and what would be read as a pattern itself, are `{id}`.
pub(super) fn without(path: &str) -> String {
    let segment = |segment| if is_id(segment) { "{id}" } else { segment };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

fn is_id(segment: &str) -> bool {
    segment.contains(['*', '{', '}'])
        || is_number(segment)
        || is_date(segment)
        || is_hex(segment)
        || is_version(segment)
        || is_random(segment)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `2026-05-01`, `2026-05-01T10:00:00Z`.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() >= 10
        && bytes.iter().take(10).enumerate().all(|(at, b)| match at {
            4 | 7 => *b == b'-',
            _ => b.is_ascii_digit(),
        })
        && bytes
            .iter()
            .skip(10)
            .all(|b| b.is_ascii_digit() || b"T:.Z+-".contains(b))
}

/// A hash, whole or short as git's, or a UUID (RFC 9562): of hexadecimal digits alone, some of them decimal.
fn is_hex(text: &str) -> bool {
    let digits = text.replace('-', "");
    let uuid = text.len() == 36 && digits.len() == 32;
    (uuid || (digits.len() == text.len() && text.len() >= 7))
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
        && digits.bytes().any(|b| b.is_ascii_digit())
}

/// `1.2`, `v1.2.3-rc.1`; but not `v1`, which is a part of an interface's name.
fn is_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let numbers = &text[..end];
    numbers.contains('.') && numbers.split('.').all(is_number)
}

/// Long, and mixed as no word is.
fn is_random(text: &str) -> bool {
    let count = |wanted: fn(&u8) -> bool| text.bytes().filter(wanted).count();
    let digits = count(u8::is_ascii_digit);
    let (upper, lower) = (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase));
    text.len() >= 16
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_=.~".contains(&b))
        && (digits * 5 >= text.len() && upper + lower > 0 || (digits >= 2 && upper >= 3 && lower >= 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_told_from_names() {
        for (path, expected) in [
            ("/repos/acme/web/pulls/17", "/repos/acme/web/pulls/{id}"),
            ("/v1/messages", "/v1/messages"),
            ("/x/1.2.3/y", "/x/{id}/y"),
            ("/x/v2.0.0-rc.1", "/x/{id}"),
            ("/o/550e8400-e29b-41d4-a716-446655440000/", "/o/{id}/"),
            ("/c/4e0ef37/d", "/c/{id}/d"),
            ("/c/da39a3ee5e6b4b0d3255bfef95601890afd80709", "/c/{id}"),
            ("/log/2026-05-01", "/log/{id}"),
            ("/s/Zk3vT9qLx2RwB7mN", "/s/{id}"),
            (
                "/a-long-name-of-some-thing/and-another-one-2",
                "/a-long-name-of-some-thing/and-another-one-2",
            ),
            ("/facade/defaced", "/facade/defaced"),
            ("/a*b", "/{id}"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(without(path), expected);
        }
    }
}
