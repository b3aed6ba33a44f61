//! The JSON Schema of policy files, made from types, with which editors complete and check.
mod rules;
mod words;

use rules::{Lent, Rule, Who};
use schemars::JsonSchema;
use std::collections::BTreeMap;
use words::{Leaks, Mode, Texts};

/// The schema (JSON Schema 2020-12), with a line break at its end.
pub fn json_schema() -> Result<String, serde_json::Error> {
    let schema = schemars::schema_for!(Document);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// A policy of Sallyport: what an agent may reach, with which credential, and what it is told otherwise.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "Sallyport policy")]
#[expect(dead_code, reason = "the types only describe the form")]
struct Document {
    /// Version of the language.
    #[schemars(range(min = 1, max = 1))]
    version: u8,
    /// For readers.
    name: Option<String>,
    /// What becomes of what no rule names; `inherit` stands below another layer only.
    default: Option<DefaultWord>,
    /// `observe` tells refusals and lets pass.
    mode: Option<Mode>,
    /// For whatever is allowed; a rule may say more.
    leaks: Option<Leaks>,
    /// What layers below may do besides narrowing.
    widen: Option<Widen>,
    /// Files beside this one, or `preset:NAME`.
    include: Option<Texts>,
    /// Named lists of hosts and addresses, or of paths.
    sets: Option<BTreeMap<String, Texts>>,
    /// Bindings of secrets to hosts and places.
    credentials: Option<BTreeMap<String, Credential>>,
    /// Keys by which hosts are known over ssh, as lines of OpenSSH's `known_hosts`: `HOST KEYTYPE BASE64`.
    #[schemars(rename = "known-hosts")]
    known_hosts: Option<Texts>,
    /// Deny beats ask beats allow; the order does not matter.
    rules: Option<Vec<Rule>>,
    /// Requests and what is expected of them.
    tests: Option<Vec<Test>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum DefaultWord {
    Deny,
    Allow,
    Inherit,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct Widen {
    /// Layers that may allow what no rule here names.
    reach: Option<Texts>,
    /// Layers that may bind credentials of their own.
    credentials: Option<Texts>,
}

/// A secret, the hosts that may see it, and the places in a request where it may stand.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct Credential {
    from: From,
    hosts: Texts,
    /// `bearer`, `basic`, `header:NAME`, `query:NAME`, `json:/POINTER`, `form:NAME`, `path`, `websocket:/POINTER`, `ssh-key`, `password`, `client-certificate`,
    /// `aws-sigv4`.
    #[schemars(rename = "in")]
    places: Texts,
    /// The variable in which the agent finds its placeholder; with `aws-sigv4` the beginning of three, `AWS`.
    env: Option<String>,
    /// How long a fetched value may be used: `1h`.
    ttl: Option<String>,
    /// What it is for, in a sentence; the agent reads it too.
    #[schemars(rename = "for")]
    purpose: Option<String>,
    /// The user name that belongs to it in log-ins by name and password.
    user: Option<String>,
    /// It may be used only once it was asked for.
    grantable: Option<Lent>,
}

/// Where the value is kept: one of `store`, `env`, `file`, `vault`, `github-app`, `oauth`, `aws-secret`, `aws-parameter`, `answer`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(dead_code, reason = "the types only describe the form")]
struct From {
    /// Name in the gateway's encrypted store.
    store: Option<String>,
    /// A variable of the gateway whose name begins with `SALLYPORT_SECRET_`.
    env: Option<String>,
    /// A file below the gateway's folder for secrets.
    file: Option<String>,
    /// Mount and path in Vault or OpenBao; with `field`.
    vault: Option<String>,
    /// Field of the secret in Vault, or of the JSON object in AWS Secrets Manager.
    field: Option<String>,
    /// Name of the app; with `repositories` and `permissions`.
    github_app: Option<String>,
    repositories: Option<Texts>,
    permissions: Option<BTreeMap<String, String>>,
    /// Name of the log-in by OAuth 2.0 in the gateway's configuration.
    oauth: Option<String>,
    /// Name or ARN in AWS Secrets Manager.
    aws_secret: Option<String>,
    /// Name or ARN of a parameter in AWS Systems Manager.
    aws_parameter: Option<String>,
    /// Host whose answer to a log-in holds the value, which the agent never sees; with `path` and one of `json`, `header`, `form`.
    answer: Option<String>,
    /// Path that is asked for.
    path: Option<String>,
    /// Pointers (RFC 6901) to strings in the answer.
    json: Option<Texts>,
    /// Names of its headers.
    header: Option<Texts>,
    /// Names of its form's fields.
    form: Option<Texts>,
}

/// A request and what is expected of it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the types only describe the form")]
struct Test {
    /// `GET https://host/path`.
    request: Option<String>,
    /// `host:port`.
    connect: Option<String>,
    headers: Option<BTreeMap<String, Texts>>,
    /// Full names of the refs that a push updates, `+` before one that is forced.
    push: Option<Texts>,
    /// When it is asked.
    at: Option<String>,
    expect: Expected,
    /// The rule that decides.
    rule: Option<String>,
    who: Option<Who>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "the types only describe the form")]
enum Expected {
    Allow,
    Deny,
    Ask,
    Inspect,
    Malformed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, PolicyText};
    use serde_json::Value;

    /// The fields that the reader takes, as it tells them of a field that it does not know.
    fn read(document: &str) -> Vec<String> {
        let text = PolicyText {
            name: "p.yaml".into(),
            text: document.replace("HERE", "zzzzzzzzzzzz: 1"),
        };
        let problems = Policy::compile(&[text]).unwrap_err();
        let told = problems
            .iter()
            .find(|problem| problem.message.contains("has no field `zzzzzzzzzzzz`"));
        let hint = told.unwrap().hint.clone().unwrap();
        let mut fields: Vec<String> = hint.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        fields.sort();
        fields
    }

    fn fields(schema: &Value) -> Vec<String> {
        assert_eq!(schema["additionalProperties"], false);
        let mut fields: Vec<String> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        fields.sort();
        fields
    }

    #[test]
    fn each_type_has_the_fields_that_the_reader_takes() {
        let schema: Value = serde_json::from_str(&json_schema().unwrap()).unwrap();
        assert_eq!(fields(&schema), read("version: 1\nHERE\n"));
        for (name, document) in [
            ("Widen", "widen: {HERE}"),
            ("Credential", "credentials: {a: {HERE}}"),
            ("From", "credentials: {a: {from: {HERE}}}"),
            ("Rule", "rules: [{HERE}]"),
            ("To", "rules: [{to: {HERE}}]"),
            ("Who", "rules: [{who: {HERE}}]"),
            ("Grantable", "rules: [{effect: deny, grantable: {HERE}}]"),
            ("Lent", "credentials: {a: {grantable: {HERE}}}"),
            ("Grant", "rules: [{effect: ask, grant: {HERE}}]"),
            ("Limit", "rules: [{effect: allow, limit: {HERE}}]"),
            ("Leaks", "leaks: {HERE}"),
            ("During", "rules: [{effect: allow, during: {HERE}}]"),
            ("Test", "tests: [{HERE}]"),
        ] {
            let mut taken = read(&format!("version: 1\n{document}\n"));
            // Reserved, and refused.
            taken.retain(|field| field != "when");
            assert_eq!(fields(&schema["$defs"][name]), taken, "{name}");
        }
    }

    #[test]
    fn the_published_schema_is_in_step() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/policies/policy.schema.json");
        let schema = json_schema().unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), schema);
    }
}
