//! Reading who lifts a refusal, how often and for how long.
use super::TermsPart;
use super::reader::Reader;
use crate::diagnostic::At;
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// A grant without `expires` ends after this.
pub(super) const DEFAULT_EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
/// No grant lasts longer.
const LONGEST_EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(24 * 366);

/// `grantable` (with `by`) or `grant` (always a person).
pub(super) fn read_terms(
    node: Spanned<Node>,
    grantable: bool,
    reader: &mut Reader<'_>,
) -> Option<At<TermsPart>> {
    let (what, known): (&str, &[&str]) = match grantable {
        true => ("`grantable`", &["by", "uses", "expires", "approvers"]),
        false => ("`grant`", &["uses", "expires", "approvers"]),
    };
    let mut fields = reader.fields(node, what, known)?;
    if let Some((at, _)) = fields.take_with_key("approvers", reader) {
        reader.unsupported(&at, "approvers");
    }
    let by = fields
        .take("by")
        .and_then(|node| reader.choice(node, "`by`", &["rule", "person"]));
    if grantable && by.is_none() {
        reader.push(
            fields
                .at
                .error("`grantable` does not say by whom")
                .hint("write `by: rule` or `by: person`"),
        );
    }
    let uses = fields
        .take("uses")
        .and_then(|node| reader.integer(node, "`uses`"))
        .and_then(|uses| {
            let count = u64::try_from(uses.value).ok().filter(|n| *n > 0);
            if count.is_none() {
                reader.push(
                    uses.at
                        .error(format!("`uses: {}` grants nothing", uses.value))
                        .hint("name 1 or more, or remove it for any number"),
                );
            }
            count
        });
    let expires = fields
        .take("expires")
        .and_then(|node| reader.text(node, "`expires`"));
    let expires = expires.and_then(|text| {
        let read = read_duration(&text.value);
        if read.is_none() {
            reader.push(
                text.at
                    .error(format!("`{}` is not a duration", shown(&text.value)))
                    .hint("write for example `30m`, `8h` or `7d`, up to 366d"),
            );
        }
        read
    });
    let by_rule = by.is_some_and(|by| by.value == "rule");
    Some(At {
        at: fields.at.clone(),
        value: TermsPart {
            by_rule,
            uses,
            expires: expires.unwrap_or(DEFAULT_EXPIRY),
            scope: super::GrantScope::Host,
            approvers: Vec::new(),
        },
    })
}

/// `90s`, `30m`, `8h`, `7d`, or several in a row.
fn read_duration(text: &str) -> Option<jiff::SignedDuration> {
    let mut total: i64 = 0;
    let mut digits = String::new();
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    let total = jiff::SignedDuration::from_secs(total);
    (digits.is_empty() && total.is_positive() && total <= LONGEST_EXPIRY).then_some(total)
}
