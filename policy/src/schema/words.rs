//! Forms that stand in many places.
use schemars::JsonSchema;

/// One text or a list of them.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) enum Texts {
    One(String),
    Many(#[schemars(length(min = 1))] Vec<String>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) enum Mode {
    Enforce,
    Observe,
}
