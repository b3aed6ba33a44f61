//! The form of rules.
use super::words::{Leaks, Mode, Texts};
use schemars::JsonSchema;
use std::collections::BTreeMap;

/// What is allowed, denied or asked for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) struct Rule {
    /// Short and unique: refusals and logs use it.
    id: String,
    to: Option<To>,
    who: Option<Who>,
    /// Credentials that may be put in.
    #[schemars(rename = "use")]
    uses: Option<Texts>,
    effect: Effect,
    /// Terms on which a refusal may be lifted; with `effect: deny`.
    grantable: Option<Grantable>,
    /// Terms of a person's yes; with `effect: ask`.
    grant: Option<Grant>,
    /// What the agent is told after a refusal.
    hint: Option<String>,
    mode: Option<Mode>,
    /// Layers below that may allow what this rule refuses.
    widen: Option<Texts>,
    limit: Option<Limit>,
    leaks: Option<Leaks>,
    during: Option<During>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum Effect {
    Allow,
    Deny,
    Ask,
}

/// Which requests; what is left out means any.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct To {
    /// Names, `*.example.com`, addresses, ranges, or sets.
    host: Option<Texts>,
    /// `443`, `"8000-8010"`, or a list of those.
    port: Option<Ports>,
    protocol: Option<Protocol>,
    methods: Option<Texts>,
    /// `{x}` is one segment, `*` a part of one, `**` any number.
    path: Option<Texts>,
    #[schemars(rename = "encoded-slash")]
    encoded_slash: Option<bool>,
    headers: Option<BTreeMap<String, Texts>>,
    query: Option<BTreeMap<String, Texts>>,
    /// Opens the private addresses that `host` names.
    private: Option<bool>,
    repository: Option<Texts>,
    access: Option<Access>,
    refs: Option<Texts>,
    force: Option<bool>,
    database: Option<Texts>,
    user: Option<Texts>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the types only describe the form")]
enum Ports {
    One(Port),
    Many(Vec<Port>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the types only describe the form")]
enum Port {
    Number(#[schemars(range(min = 1))] u16),
    Range(String),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum Protocol {
    Http,
    Tls,
    Tcp,
    Git,
    Ssh,
    Postgres,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum Access {
    Read,
    Write,
}

/// Facts about the run for which the supervisor vouches; all must hold.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) struct Who {
    run: Option<Texts>,
    user: Option<Texts>,
    team: Option<Texts>,
    repository: Option<Texts>,
    environment: Option<Texts>,
    machine: Option<Texts>,
    parent_run: Option<Texts>,
    labels: Option<BTreeMap<String, Texts>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct Grantable {
    by: By,
    #[schemars(range(min = 1))]
    uses: Option<u64>,
    /// `30m`, `8h`, `7d`.
    expires: Option<String>,
    scope: Option<Scope>,
    /// `team:NAME` or `user:NAME`.
    approvers: Option<Texts>,
}

/// Who lends a credential to an agent that asks, and for how long.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
pub(super) struct Lent {
    by: By,
    /// `30m`, `8h`, `7d`.
    expires: Option<String>,
    /// `team:NAME` or `user:NAME`.
    approvers: Option<Texts>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct Grant {
    #[schemars(range(min = 1))]
    uses: Option<u64>,
    /// `30m`, `8h`, `7d`.
    expires: Option<String>,
    scope: Option<Scope>,
    /// `team:NAME` or `user:NAME`.
    approvers: Option<Texts>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum By {
    Rule,
    Person,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum Scope {
    Host,
    Request,
}

/// How much may pass in one run.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct Limit {
    /// Under way at once.
    #[schemars(range(min = 1))]
    connections: Option<u32>,
    bytes_out: Option<Size>,
    request_bytes: Option<Size>,
    response_bytes: Option<Size>,
    /// `20/s`, `100/m`, `1000/h`.
    rate: Option<String>,
    /// `5MB/s`, both ways together; what is more waits.
    bandwidth: Option<String>,
}

/// Bytes, or `50MB`, `10KiB`.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the types only describe the form")]
enum Size {
    Bytes(u64),
    Text(String),
}

/// When the rule holds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct During {
    /// `mon-fri`, or a list.
    days: Option<Texts>,
    /// `07:00-20:00`.
    hours: Option<String>,
    /// A name of the IANA database.
    zone: String,
}
