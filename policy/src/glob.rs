//! Texts with `*` in them: facts of a run, log-in names, values of header fields and query parameters.

/// What `*` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Star {
    /// Any text.
    Any,
    /// Any text without `/`.
    WithinSegment,
}

/// Whether the value fits as a whole. Takes bytes as they come, so that nothing needs to be decoded into memory first.
pub(crate) fn fits(pattern: &str, value: impl Iterator<Item = u8> + Clone, star: Star) -> bool {
    let pattern = pattern.as_bytes();
    let mut rest = value;
    let mut at = 0;
    // Where to go on after the last `*`, and what it has not yet swallowed.
    let mut back = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            back = Some((at, rest.clone()));
            continue;
        }
        match (pattern.get(at), rest.next()) {
            (None, None) => return true,
            (Some(expected), Some(byte)) if *expected == byte => at += 1,
            (_, None) => return false,
            _ => {
                let Some((after, swallowed)) = &mut back else {
                    return false;
                };
                match swallowed.next() {
                    Some(b'/') if star == Star::WithinSegment => return false,
                    Some(_) => {}
                    None => return false,
                }
                at = *after;
                rest = swallowed.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(pattern: &str, value: &str) -> bool {
        fits(pattern, value.bytes(), Star::Any)
    }

    fn within(pattern: &str, value: &str) -> bool {
        fits(pattern, value.bytes(), Star::WithinSegment)
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, value) in [
            ("a", "a"),
            ("*", ""),
            ("*", "a/b"),
            ("application/*", "application/json"),
            ("*b*", "abc"),
            ("a*a*a", "aaaa"),
            ("*ab", "aab"),
            ("**", "x"),
            ("", ""),
        ] {
            assert!(any(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [
            ("a", "ab"),
            ("a", ""),
            ("", "a"),
            ("a*a", "a"),
            ("*b", "ba"),
            ("a*c", "ab"),
        ] {
            assert!(!any(pattern, value), "{pattern} {value}");
        }
    }

    #[test]
    fn a_star_may_end_at_a_slash() {
        assert!(within("acme/*", "acme/web"));
        assert!(within("*/web", "acme/web"));
        assert!(within("a*/b*c", "ax/bxc"));
        assert!(!within("acme/*", "acme/web/x"));
        assert!(!within("*", "acme/web"));
        assert!(!within("a*b*c", "axb/bc"));
    }
}
