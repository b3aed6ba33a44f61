//! Problems shown in the line of the file where they stand, with carets below.
use crate::diagnostic::{PolicyText, Problem};
use crate::presets;
use unicode_width::UnicodeWidthChar;

/// Most columns of a line that are shown; of a longer one the part around the problem is.
const SHOWN_COLUMNS: usize = 100;
/// Columns that are shown before the problem where a line is cut.
const LEAD_COLUMNS: usize = 40;

impl Problem {
    /// What `Display` prints with the problem's code, its line and carets under the value; `texts` are the policy's files.
    /// A file that is not among them gives no line.
    pub fn render(&self, texts: &[PolicyText]) -> String {
        let Self {
            severity,
            code,
            message,
            file,
            line,
            column,
            ..
        } = self;
        let mut text = format!("{file}:{line}:{column}: {severity}[{code}]: {message}");
        let own = texts.iter().find(|text| text.name == *file);
        let source = own
            .or_else(|| presets::text(file))
            .and_then(|text| text.text.lines().nth((*line as usize).saturating_sub(1)));
        if let Some(source) = source {
            let shown = Snippet::new(source, (*column as usize).saturating_sub(1));
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            text.push_str(&format!(
                "\n {margin} |\n {number} | {}\n {margin} | {}",
                shown.line, shown.carets
            ));
        }
        match &self.hint {
            Some(hint) => format!("{text}\n  hint: {hint}"),
            None => text,
        }
    }

    /// How many characters the value has at which the problem stands, in this line of the file; 1 where that cannot be told.
    pub fn length(&self, line: &str) -> usize {
        let rest: Vec<char> = line
            .chars()
            .skip((self.column as usize).saturating_sub(1))
            .collect();
        value_length(&rest)
    }
}

/// A line made fit for a terminal, and what stands under it.
struct Snippet {
    line: String,
    carets: String,
}

impl Snippet {
    /// `at` is the problem's place in characters, from 0.
    fn new(source: &str, at: usize) -> Self {
        let chars: Vec<char> = source.chars().collect();
        let at = at.min(chars.len());
        let end = at + value_length(&chars[at..]);
        let width = |range: &[char]| range.iter().map(|c| visible(*c).1).sum::<usize>();
        let (mut from, mut cut) = (0, "");
        if width(&chars) > SHOWN_COLUMNS && width(&chars[..at]) > LEAD_COLUMNS {
            while width(&chars[from..at]) > LEAD_COLUMNS {
                from += 1;
            }
            cut = "…";
        }
        let mut line = String::from(cut);
        let mut carets = " ".repeat(cut.chars().count());
        let mut columns = 0;
        for (number, c) in chars.iter().enumerate().skip(from) {
            let (c, width) = visible(*c);
            if columns + width > SHOWN_COLUMNS {
                line.push('…');
                break;
            }
            columns += width;
            line.push(c);
            let mark = if number < at {
                " "
            } else if number < end {
                "^"
            } else {
                ""
            };
            carets.push_str(&mark.repeat(width));
        }
        if !carets.ends_with('^') {
            carets.push('^');
        }
        Self {
            line: line.trim_end().to_owned(),
            carets,
        }
    }
}

/// The character as a terminal may have it, and its columns: a tab is one space, and what moves the cursor or turns the
/// direction of text is shown as unknown.
fn visible(c: char) -> (char, usize) {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    match c {
        '\t' => (' ', 1),
        _ if c.is_control() || turns => ('\u{fffd}', 1),
        _ => (c, c.width().unwrap_or(1)),
    }
}

/// Characters of the YAML value or key at the beginning: a quoted text with its quotes, or what ends before a mark of YAML.
fn value_length(rest: &[char]) -> usize {
    let length = match rest.first() {
        Some(quote @ ('"' | '\'')) => {
            let close = rest.iter().skip(1).position(|c| c == quote);
            close.map_or(rest.len(), |close| close + 2)
        }
        Some('{' | '[' | '-') | None => 1,
        Some(_) => plain_length(rest),
    };
    length.max(1)
}

fn plain_length(rest: &[char]) -> usize {
    let ends = |(at, c): (usize, &char)| match c {
        ',' | ']' | '}' => true,
        ':' => rest.get(at + 1).is_none_or(|next| next.is_whitespace()),
        '#' => at > 0 && rest[at - 1].is_whitespace(),
        _ => false,
    };
    let end = rest.iter().enumerate().position(ends).unwrap_or(rest.len());
    let text = &rest[..end];
    end - text.iter().rev().take_while(|c| c.is_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Position;
    use proptest::prelude::*;

    fn shown(text: &str, line: u32, column: u32) -> String {
        let at = Position {
            file: "p.yaml".into(),
            line,
            column,
        };
        let problem = at.error("odd").hint("look");
        let text = PolicyText {
            name: "p.yaml".into(),
            text: text.into(),
        };
        problem.render(&[text])
    }

    #[test]
    fn the_value_is_marked_in_its_line() {
        assert_eq!(
            shown("version: 1\nrules:\n  - {id: a, to: {hosts: a.test}}\n", 3, 18),
            "p.yaml:3:18: error[invalid-value]: odd\n   |\n 3 |   - {id: a, to: {hosts: a.test}}\n   |                  ^^^^^\n  hint: look"
        );
        let quoted = shown("a: \"b, c\" # d", 1, 4);
        assert!(
            quoted.contains("\n 1 | a: \"b, c\" # d\n   |    ^^^^^^\n"),
            "{quoted}"
        );
    }

    #[test]
    fn wide_characters_and_tabs_keep_the_carets_in_place() {
        let wide = shown("host: [例え.test, bad]", 1, 17);
        assert!(wide.contains("\n   |                   ^^^\n"), "{wide}");
        let tabs = shown("\ta:\tb", 1, 5);
        assert!(tabs.contains("\n 1 |  a: b\n   |     ^\n"), "{tabs}");
    }

    #[test]
    fn what_would_turn_or_move_the_text_is_not_shown() {
        let odd = shown("a: \u{202e}b\u{1b}[2J", 1, 4);
        assert!(odd.contains("a: \u{fffd}b\u{fffd}[2J"), "{odd:?}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_problem() {
        let text = format!(
            "hosts: [{}bad, {}]",
            "a.test, ".repeat(100),
            "b.test, ".repeat(100)
        );
        let long = shown(&text, 1, 809);
        let lines: Vec<&str> = long.lines().collect();
        assert!(
            lines[2].starts_with(" 1 | …") && lines[2].ends_with('…'),
            "{long}"
        );
        assert!(lines[2].chars().count() < 110, "{long}");
        let at = lines[3].chars().position(|c| c == '^').expect("a caret");
        let marked: String = lines[2].chars().skip(at).take(3).collect();
        assert_eq!(marked, "bad", "{long}");
    }

    #[test]
    fn a_place_outside_of_the_text_gives_no_line_or_one_caret() {
        assert_eq!(
            shown("a: b", 7, 1),
            "p.yaml:7:1: error[invalid-value]: odd\n  hint: look"
        );
        let behind = shown("a:", 1, 9);
        assert!(behind.contains("\n 1 | a:\n   |   ^\n"), "{behind}");
    }

    proptest! {
        #[test]
        fn any_text_and_place_can_be_shown(text in ".{0,300}", line in 1u32..4, column in 1u32..400) {
            let shown = shown(&text, line, column);
            prop_assert!(shown.starts_with("p.yaml:"));
            let escaped = shown.contains('\u{1b}');
            prop_assert!(!escaped);
        }
    }
}
