//! What could be added to a policy so that sure gaps close: presets first, then rules and bindings, for a person to review.
use super::finding::{Finding, Outcome};
use super::need::{Certainty, NeedKind, Scheme, Site};
use super::presets::Preset;
use crate::Request;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most rules that are suggested.
const RULES: usize = 50;

/// An addition to a policy. `Display` writes it as the parts of a policy file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// Names for `include`, each with the number of gaps that it closes.
    pub include: BTreeMap<String, usize>,
    /// Credentials' YAML, an entry each.
    pub credentials: Vec<String>,
    /// Rules' YAML, an item each.
    pub rules: Vec<String>,
    /// What remains to be done by hand, a sentence each.
    pub remarks: Vec<String>,
}

/// What would close the sure gaps. A refusal by a rule is somebody's decision: nothing is suggested against it.
pub(super) fn suggest(findings: &[Finding], presets: &[Preset], now: jiff::Timestamp) -> Suggestion {
    let mut draft = Draft {
        presets,
        now,
        suggestion: Suggestion::default(),
        bound: BTreeMap::new(),
        hosts: BTreeMap::new(),
        ids: BTreeSet::new(),
    };
    let gaps = || {
        findings
            .iter()
            .filter(|finding| finding.outcome.is_gap() && finding.need.certainty == Certainty::Sure)
    };
    for finding in gaps() {
        draft.bind(finding);
    }
    for finding in gaps() {
        draft.open(finding);
    }
    draft.finish()
}

struct Draft<'a> {
    presets: &'a [Preset],
    now: jiff::Timestamp,
    suggestion: Suggestion,
    /// Credentials by the place that they are for.
    bound: BTreeMap<String, String>,
    hosts: BTreeMap<String, Site>,
    ids: BTreeSet<String>,
}

impl Draft<'_> {
    fn bind(&mut self, finding: &Finding) {
        let NeedKind::Credential { variable, site } = &finding.need.kind else {
            return;
        };
        match (&finding.outcome, site) {
            (Outcome::Unused { credential }, Some(site)) => {
                self.bound.insert(site.to_string(), credential.clone());
                self.hosts.insert(site.to_string(), site.clone());
            }
            (Outcome::Unused { credential }, None) => self.suggestion.remarks.push(format!(
                "add `use: [{credential}]` to the rule for the host that it is for"
            )),
            (Outcome::NoCredential, Some(site)) => {
                let base = variable
                    .as_ref()
                    .map_or_else(|| site.host.replace('.', "-"), |name| slug(name));
                let name = self.fresh(&base);
                let env = variable
                    .as_ref()
                    .map_or_else(String::new, |name| format!("\n    env: {name}"));
                self.suggestion.credentials.push(format!(
                    "  {name}:\n    from: {{store: {name}}}\n    hosts: [\"{}\"]\n    in: [bearer, basic]{env}",
                    site.host
                ));
                self.bound.insert(site.to_string(), name);
                self.hosts.insert(site.to_string(), site.clone());
            }
            (_, None) => {
                let name = variable.as_deref().unwrap_or("it");
                self.suggestion.remarks.push(format!(
                    "define a credential with `env: {name}` and the hosts that it is for"
                ));
            }
            _ => {}
        }
    }

    fn open(&mut self, finding: &Finding) {
        let need = &finding.need;
        match &finding.outcome {
            Outcome::Refused { refusal, .. } if refusal.reason.rule == "default" => {}
            Outcome::Refused { request, refusal } => {
                self.suggestion.remarks.push(format!(
                    "rule `{}` refuses `{request}`; change it if that is not meant",
                    refusal.reason.rule
                ));
                return;
            }
            _ => return,
        }
        match &need.kind {
            NeedKind::Registries => self.include(&need.ecosystem),
            NeedKind::Host { site, method, paths } => {
                let requests: Option<Vec<Request>> = paths
                    .iter()
                    .map(|path| Request::parse(&format!("{method} {site}{path}")).ok())
                    .collect();
                match requests.and_then(|requests| self.preset_for(&need.ecosystem, &requests)) {
                    Some(name) => self.include(&name),
                    None => {
                        self.hosts.insert(site.to_string(), site.clone());
                    }
                }
            }
            NeedKind::Git { site, repository, .. } => self.clone_rule(site, repository),
            NeedKind::Credential { .. } => {}
        }
    }

    /// A preset that allows all of these: that of the need's own ecosystem before any other.
    fn preset_for(&self, ecosystem: &str, requests: &[Request]) -> Option<String> {
        let fits = |preset: &&Preset| {
            preset.name != "registries" && requests.iter().all(|request| preset.allows(request, self.now))
        };
        let own = self
            .presets
            .iter()
            .filter(fits)
            .find(|preset| preset.name == ecosystem);
        own.or_else(|| self.presets.iter().find(fits))
            .map(|preset| preset.name.clone())
    }

    fn include(&mut self, name: &str) {
        *self
            .suggestion
            .include
            .entry(format!("preset:{name}"))
            .or_default() += 1;
    }

    fn clone_rule(&mut self, site: &Site, repository: &str) {
        if site.scheme == Scheme::Ssh {
            let remark = format!(
                "`{site}/{repository}` is fetched over ssh: let git use https with `url.<base>.insteadOf`, and allow that"
            );
            self.suggestion.remarks.push(remark);
            return;
        }
        let id = self.fresh(&format!("clone-{}", slug(repository.trim_end_matches(".git"))));
        let paths = format!("[\"/{repository}/info/refs\", \"/{repository}/git-upload-pack\"]");
        self.rule(&id, site, &format!("methods: [GET, POST], path: {paths}"));
    }

    fn rule(&mut self, id: &str, site: &Site, what: &str) {
        let port = match site.port {
            443 => String::new(),
            port => format!(" port: {port},"),
        };
        let uses = self
            .bound
            .get(&site.to_string())
            .map_or_else(String::new, |name| format!("\n    use: [{name}]"));
        self.suggestion.rules.push(format!(
            "  - id: {id}\n    to: {{host: \"{}\",{port} {what}}}{uses}\n    effect: allow",
            site.host
        ));
    }

    fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 1;
        while !self.ids.insert(name.clone()) {
            number += 1;
            name = format!("{base}-{number}");
        }
        name
    }

    fn finish(mut self) -> Suggestion {
        for site in std::mem::take(&mut self.hosts).into_values() {
            let id = self.fresh(&format!("read-{}", slug(&site.host)));
            self.rule(&id, &site, "methods: [GET, HEAD]");
        }
        let left = self.suggestion.rules.len().saturating_sub(RULES);
        if left > 0 {
            self.suggestion.rules.truncate(RULES);
            self.suggestion
                .remarks
                .push(format!("{left} more rules would be needed"));
        }
        self.suggestion
    }
}

/// Lower-case letters, digits and `-`.
fn slug(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    plain.trim_matches('-').to_owned()
}

impl Suggestion {
    /// Whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty()
            && self.credentials.is_empty()
            && self.rules.is_empty()
            && self.remarks.is_empty()
    }
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        if !self.include.is_empty() {
            let names: Vec<&str> = self.include.keys().map(String::as_str).collect();
            let closed: usize = self.include.values().sum();
            let gaps = if closed == 1 {
                "1 gap"
            } else {
                &format!("{closed} gaps")
            };
            parts.push(format!("include: [{}]    # closes {gaps}", names.join(", ")));
        }
        if !self.credentials.is_empty() {
            parts.push(format!("credentials:\n{}", self.credentials.join("\n")));
        }
        if !self.rules.is_empty() {
            parts.push(format!("rules:\n{}", self.rules.join("\n")));
        }
        parts.extend(self.remarks.iter().map(|remark| format!("# {remark}")));
        f.write_str(&parts.join("\n"))
    }
}
