//! Reading `leaks`: what becomes of secrets in a request that is allowed.
use super::reader::Reader;
use crate::diagnostic::At;
use crate::leaks::{Leaks, OnPlaceholder, OnUnknown, OnValue};
use crate::yaml::Node;
use serde_saphyr::Spanned;

pub(super) fn read_leaks(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<At<Leaks>> {
    let before = reader.problems.len();
    let mut fields = reader.fields(node, "`leaks`", &["values", "placeholders", "unknown"])?;
    let at = fields.at.clone();
    let mut word = |name: &str, words: &[&str]| {
        let node = fields.take(name)?;
        Some(reader.choice(node, &format!("`{name}`"), words)?.value)
    };
    let value = Leaks {
        values: word("values", &["refuse", "redact"]).map(|word| match word.as_str() {
            "redact" => OnValue::Redact,
            _ => OnValue::Refuse,
        }),
        placeholders: word("placeholders", &["refuse", "strip"]).map(|word| match word.as_str() {
            "strip" => OnPlaceholder::Strip,
            _ => OnPlaceholder::Refuse,
        }),
        unknown: word("unknown", &["log", "refuse"]).map(|word| match word.as_str() {
            "log" => OnUnknown::Log,
            _ => OnUnknown::Refuse,
        }),
    };
    if value.is_silent() && reader.problems.len() == before {
        reader.push(
            at.error("`leaks` says nothing")
                .hint("write for example `leaks: {values: redact, placeholders: strip, unknown: log}`"),
        );
    }
    Some(At { value, at })
}
