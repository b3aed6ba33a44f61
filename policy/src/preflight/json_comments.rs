//! JSON with comments and commas too many made into plain JSON, line by line as it was.

/// The text with comments as spaces, and without commas that stand before a closing bracket.
pub(super) fn without(text: &str) -> String {
    let plain = blank_comments(text);
    let mut out = String::with_capacity(plain.len());
    let mut in_text = false;
    let mut escaped = false;
    for (at, c) in plain.char_indices() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            out.push(c);
            continue;
        }
        in_text = c == '"';
        let closes = || {
            plain
                .get(at + 1..)
                .is_some_and(|rest| rest.trim_start().starts_with(['}', ']']))
        };
        if c == ',' && closes() {
            continue;
        }
        out.push(c);
    }
    out
}

fn blank_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '"' => text_end(rest),
            '/' if rest.starts_with("//") => {
                rest = rest
                    .get(rest.find('\n').unwrap_or(rest.len())..)
                    .unwrap_or_default();
                continue;
            }
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").map_or(rest.len(), |at| at + 2);
                let (comment, after) = rest.split_at(end);
                out.extend(comment.chars().filter(|c| *c == '\n'));
                rest = after;
                continue;
            }
            _ => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(taken);
        out.push_str(piece);
        rest = after;
    }
    out
}

/// Bytes of the quoted text at the beginning, with its quotes.
fn text_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_go_and_what_only_looks_like_one_stays() {
        let text = "{ // one\n \"a\": \"http://x.test/*\", /* two\n */ \"b\": [1, 2,],\n}";
        let value: serde_json::Value = serde_json::from_str(&without(text)).unwrap();
        assert_eq!(value, serde_json::json!({"a": "http://x.test/*", "b": [1, 2]}));
        assert_eq!(without(text).lines().count(), text.lines().count());
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "[/*\",\\\\\\]} \\nx\u{e9}]{0,40}") {
            let _ = without(&text);
        }
    }
}
