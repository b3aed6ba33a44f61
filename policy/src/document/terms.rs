//! Reading who lifts a refusal, how often and for how long.
use super::quantities::{count, duration};
use super::reader::Reader;
use super::{GrantScope, TermsPart};
use crate::diagnostic::At;
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// A grant without `expires` ends after this.
pub(super) const DEFAULT_EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// Which terms are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terms {
    /// `grantable` of a rule that denies.
    Rule,
    /// `grant` of a rule that asks: always a person.
    Person,
    /// `grantable` of a credential.
    Credential,
}

/// `grantable` (with `by`) or `grant`.
pub(super) fn read_terms(
    node: Spanned<Node>,
    terms: Terms,
    reader: &mut Reader<'_>,
) -> Option<At<TermsPart>> {
    let (what, known): (&str, &[&str]) = match terms {
        Terms::Rule => ("`grantable`", &["by", "uses", "expires", "scope", "approvers"]),
        Terms::Person => ("`grant`", &["uses", "expires", "scope", "approvers"]),
        Terms::Credential => ("`grantable`", &["by", "expires", "approvers"]),
    };
    let mut fields = reader.fields(node, what, known)?;
    let by = fields
        .take("by")
        .and_then(|node| reader.choice(node, "`by`", &["rule", "person"]));
    if terms != Terms::Person && by.is_none() {
        reader.push(
            fields
                .at
                .error("`grantable` does not say by whom")
                .hint("write `by: rule` or `by: person`"),
        );
    }
    let by_rule = by.is_some_and(|by| by.value == "rule");
    let uses = fields
        .take("uses")
        .and_then(|node| count(node, "`uses`", reader))
        .map(|uses| uses.value);
    let expires = fields
        .take("expires")
        .and_then(|node| duration(node, "`expires`", reader));
    let scope = fields
        .take("scope")
        .and_then(|node| reader.choice(node, "`scope`", &["host", "request"]));
    let approvers = match fields.take_with_key("approvers", reader) {
        Some((at, node)) => {
            if by_rule {
                let problem = at.error("`approvers` has no meaning with `by: rule`");
                reader.push(problem.hint("nobody is asked; remove it, or write `by: person`"));
            }
            read_approvers(node, reader)
        }
        None => Vec::new(),
    };
    Some(At {
        at: fields.at.clone(),
        value: TermsPart {
            by_rule,
            uses,
            expires: expires.unwrap_or(DEFAULT_EXPIRY),
            scope: match scope {
                Some(scope) if scope.value == "request" => GrantScope::Request,
                _ => GrantScope::Host,
            },
            approvers,
        },
    })
}

/// `team:NAME` or `user:NAME`.
fn read_approvers(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<String> {
    let words = reader.texts(node, "`approvers`");
    for word in &words {
        let named = word
            .value
            .split_once(':')
            .is_some_and(|(kind, name)| matches!(kind, "team" | "user") && !name.trim().is_empty());
        if !named {
            reader.push(
                word.at
                    .error(format!("`{}` is no approver", shown(&word.value)))
                    .hint("write `team:NAME` or `user:NAME`"),
            );
        }
    }
    words.into_iter().map(|word| word.value).collect()
}
