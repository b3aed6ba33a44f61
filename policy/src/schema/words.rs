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

/// What becomes of secrets in a request that is allowed.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) struct Leaks {
    /// A value that the gateway knows: `refuse` (the default), or `redact`, which puts its placeholder in its place.
    values: Option<OnValue>,
    /// A placeholder where no credential is bound to: `refuse` it anywhere, or `strip` the header in which credentials are sent.
    placeholders: Option<OnPlaceholder>,
    /// What looks like a secret that the gateway does not know.
    unknown: Option<OnUnknown>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) enum OnValue {
    Refuse,
    Redact,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) enum OnPlaceholder {
    Refuse,
    Strip,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) enum OnUnknown {
    Log,
    Refuse,
}
