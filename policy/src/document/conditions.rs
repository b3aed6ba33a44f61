//! Reading `headers` and `query`: what a request must say besides method and path.
use super::ConditionPart;
use super::reader::Reader;
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// Fields that carry credentials: rules do not look at what the policy must not know.
const SECRET_FIELDS: &[&str] = &["authorization", "cookie", "proxy-authorization"];

/// Field names are tokens without case (RFC 9110 section 5.1).
pub(super) fn read_headers(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<ConditionPart> {
    let mut parts: Vec<ConditionPart> = Vec::new();
    for mut part in read(node, "`headers`", reader) {
        let lower = part.name.value.to_ascii_lowercase();
        let problem = if !is_token(&lower) {
            Some(part.name.at.error(format!(
                "`{}` is not the name of a header",
                shown(&part.name.value)
            )))
        } else if SECRET_FIELDS.contains(&lower.as_str()) {
            let problem = part.name.at.error(format!(
                "header `{lower}` carries credentials and is no condition"
            ));
            Some(problem.hint("say with `use` which credential a rule takes"))
        } else if parts.iter().any(|earlier| earlier.name.value == lower) {
            Some(part.name.at.error(format!("header `{lower}` stands here twice")))
        } else {
            None
        };
        part.name.value = lower;
        match problem {
            Some(problem) => reader.push(problem),
            None => parts.push(part),
        }
    }
    parts
}

/// Parameters by name, as they are after decoding.
pub(super) fn read_query(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<ConditionPart> {
    read(node, "`query`", reader)
}

fn read(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Vec<ConditionPart> {
    let at = reader.at(&node);
    let before = reader.problems.len();
    let parts: Vec<ConditionPart> = reader
        .entries(node, what)
        .into_iter()
        .map(|(name, node)| {
            let values = reader.texts(node, &format!("`{}`", shown(&name.value)));
            ConditionPart { name, values }
        })
        .collect();
    if parts.is_empty() && reader.problems.len() == before {
        let problem = at.error(format!("{what} names nothing"));
        reader.push(problem.hint("remove it, or name what must stand there, with its values"));
    }
    parts
}

fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
