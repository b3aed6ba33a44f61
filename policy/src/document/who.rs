//! Reading `who`: facts that must hold.
use super::WhoPart;
use super::reader::Reader;
use crate::diagnostic::At;
use crate::yaml::Node;
use serde_saphyr::Spanned;

const FACTS: &[&str] = &[
    "run",
    "user",
    "team",
    "repository",
    "environment",
    "machine",
    "parent_run",
    "labels",
];
pub(super) fn read_who(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<WhoPart> {
    let before = reader.problems.len();
    let Some(mut fields) = reader.fields(node, "`who`", FACTS) else {
        return Vec::new();
    };
    let at = fields.at.clone();
    let mut parts = Vec::new();
    for fact in FACTS {
        let Some((at, node)) = fields.take_with_key(fact, reader) else {
            continue;
        };
        if *fact == "labels" {
            for (name, node) in reader.entries(node, "`labels`") {
                let values = reader
                    .texts(node, "a label")
                    .into_iter()
                    .map(|v| v.value)
                    .collect();
                parts.push(WhoPart {
                    fact: name.with(format!("labels.{}", name.value)),
                    values,
                });
            }
        } else {
            let values = reader
                .texts(node, &format!("`{fact}`"))
                .into_iter()
                .map(|v| v.value)
                .collect();
            parts.push(WhoPart {
                fact: At {
                    value: (*fact).to_owned(),
                    at,
                },
                values,
            });
        }
    }
    if parts.is_empty() && reader.problems.len() == before {
        reader.push(
            at.error("`who` names no fact")
                .hint("remove it if the rule is meant for every run"),
        );
    }
    parts
}
