//! Makes text of others harmless for a terminal: control, C1, line-separating and bidirectional characters are
//! shown as escapes.

/// Whether a character can move the cursor, reorder or hide text.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{061c}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn push(out: &mut String, character: char) {
    if is_unsafe(character) {
        out.extend(character.escape_debug())
    } else {
        out.push(character)
    }
}

/// For one line: line breaks and tabs are escaped too.
pub(super) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        push(&mut out, character);
    }
    out
}

/// For several lines: line breaks stay, tabs become spaces.
pub(super) fn block(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            '\r' if characters.peek() == Some(&'\n') => {}
            other => push(&mut out, other),
        }
    }
    out
}

/// Cuts a line (escaped already) to so many columns, with a mark. Counts characters, which is exact for what
/// hosts and paths are made of.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(columns.saturating_sub(1)).collect();
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_the_cursor_or_reorders_text_is_shown_as_an_escape() {
        assert_eq!(line("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("/x\r\nFAKE"), "/x\\r\\nFAKE");
        assert_eq!(line("\u{85}\u{2028}\u{202e}x"), "\\u{85}\\u{2028}\\u{202e}x");
        assert_eq!(line("grün 漢"), "grün 漢");
        assert_eq!(block("a\r\nb\tc\rd\x07"), "a\nb    c\\rd\\u{7}");
    }

    #[test]
    fn a_cut_line_says_so() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
    }

    proptest::proptest! {
        #[test]
        fn no_text_leaves_a_control_character(text in ".*") {
            proptest::prop_assert!(!line(&text).chars().any(is_unsafe));
            proptest::prop_assert!(!block(&text).chars().any(|c| c != '\n' && is_unsafe(c)));
        }
    }
}
