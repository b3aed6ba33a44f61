//! Texts in records: bounded, on one line, and harmless to look at.
use crate::control::types::AuditRecord;
use sallyport_policy::Who;

const SHORT: usize = 512;
const LONG: usize = 2048;
const NAMES: usize = 64;

/// Bounds every text of a record and escapes what could forge lines or mislead a reader.
pub(super) fn tidy(record: &mut AuditRecord) {
    for text in [
        &mut record.id,
        &mut record.session,
        &mut record.user,
        &mut record.kind,
        &mut record.host,
        &mut record.rule,
        &mut record.policy_hash,
        &mut record.ending,
    ] {
        tidy_text(text, SHORT);
    }
    tidy_text(&mut record.reason, LONG);
    if let Some(method) = &mut record.method {
        tidy_text(method, SHORT);
    }
    if let Some(path) = &mut record.path {
        tidy_text(path, LONG);
    }
    for names in [
        &mut record.credentials_used,
        &mut record.credentials_redacted,
        &mut record.grants,
    ] {
        names.truncate(NAMES);
        names.iter_mut().for_each(|name| tidy_text(name, SHORT));
    }
    if let Some(who) = &mut record.who {
        tidy_facts(who);
    }
    if let Some(refusal) = &mut record.refusal {
        tidy_text(&mut refusal.reason.rule, SHORT);
        tidy_text(&mut refusal.reason.text, LONG);
        if let Some(hint) = &mut refusal.hint {
            tidy_text(hint, LONG);
        }
    }
}

fn tidy_facts(who: &mut Who) {
    let labels = std::mem::take(&mut who.labels).into_iter().take(NAMES);
    who.labels = labels
        .map(|(mut name, value)| {
            tidy_text(&mut name, SHORT);
            (name, value)
        })
        .collect();
    who.values_mut().for_each(|value| tidy_text(value, SHORT));
}

fn tidy_text(text: &mut String, most: usize) {
    if text.chars().any(misleads) {
        let escape = |character: char| {
            if misleads(character) {
                character.escape_unicode().to_string()
            } else {
                character.to_string()
            }
        };
        // Cut before escaping too: a megabyte of control characters would become ten.
        *text = text.chars().take(most + 1).map(escape).collect::<String>();
    }
    if text.len() > most {
        let cut = (0..=most)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        text.truncate(cut);
        text.push_str("…(cut)");
    }
}

/// Control characters (C0, DEL, C1), separators of lines, what changes the direction of writing, and what has no width.
fn misleads(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tidied(text: &str) -> String {
        let mut text = text.to_owned();
        tidy_text(&mut text, 100);
        text
    }

    #[test]
    fn what_forges_lines_or_misleads_is_escaped() {
        assert_eq!(tidied("/a\r\nFAKE"), r"/a\u{d}\u{a}FAKE");
        assert_eq!(tidied("\x1b[2J"), r"\u{1b}[2J");
        assert_eq!(
            tidied("a\u{85}b\u{2028}c\u{202e}d\u{2066}e"),
            r"a\u{85}b\u{2028}c\u{202e}d\u{2066}e"
        );
        assert_eq!(tidied("grüße/日本"), "grüße/日本");
    }

    #[test]
    fn long_texts_are_cut_with_a_mark_at_a_character() {
        let text = tidied(&"ü".repeat(1000));
        assert!(text.len() < 120 && text.ends_with("…(cut)"), "{text}");
        assert!(tidied(&"\x1b".repeat(1_000_000)).len() < 120);
    }
}
