//! Documents to a policy: sets, credentials and includes resolved, everything checked.
use crate::check;
use crate::diagnostic::At;
use crate::document::{CredentialPart, Document, Effect, RulePart, SetPart};
use crate::host_pattern::HostPattern;
use crate::include;
use crate::path_pattern::PathPattern;
use crate::policy::HostIndex;
use crate::rule::Rule;
use crate::{Credential, Policy, PolicyText, Problem, Protocol, Severity};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Port of an allow rule that names none.
const DEFAULT_PORT: u16 = 443;

impl Policy {
    /// Parses, checks and compiles. `texts[0]` is the policy; the others are what its `include` may name. All problems at once.
    ///
    /// Problems that are only warnings do not stop it: they are kept in [`Policy::warnings`].
    pub fn compile(texts: &[PolicyText]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let documents = include::collect(texts, &mut problems);
        let mut compiler = Compiler::new(&documents, &mut problems);
        let (credentials, credential_parts) = compiler.credentials(&documents);
        let rules = compiler.rules(&documents, &credentials);
        check::documents(&documents, &mut problems);
        check::rules(&rules, &mut problems);
        check::tests(&documents, &rules, &mut problems);
        check::credentials(&credentials, &credential_parts, &rules, &mut problems);
        problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        problems.dedup();
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(problems);
        }
        let mut documents = documents.into_iter();
        let first = documents.next();
        Ok(Self {
            hash: hash(texts),
            index: HostIndex::new(&rules),
            rules,
            credentials,
            default_allow: first
                .as_ref()
                .is_some_and(|document| document.default_allow.is_some()),
            tests: first.map(|document| document.tests).unwrap_or_default(),
            warnings: problems,
        })
    }
}

/// Length-prefixed, so that no two lists of texts have the same bytes.
fn hash(texts: &[PolicyText]) -> String {
    let mut hasher = Sha256::new();
    for part in texts.iter().flat_map(|text| [&text.name, &text.text]) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing into a `String` cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

struct Compiler<'a> {
    /// By name, and as `preset:NAME` for the set `NAME` of that preset.
    sets: HashMap<String, &'a SetPart>,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Compiler<'a> {
    fn new(documents: &'a [Document], problems: &'a mut Vec<Problem>) -> Self {
        let mut sets: HashMap<String, &SetPart> = HashMap::new();
        for document in documents {
            for set in &document.sets {
                let name = &set.name;
                if let Some(first) = sets.get(&name.value) {
                    problems.push(name.at.error(format!(
                        "set `{}` is defined twice; first at {}",
                        name.value, first.name.at
                    )));
                    continue;
                }
                if name.value.contains(['.', '*', '/', ':', ' ']) {
                    problems.push(
                        name.at
                            .error(format!(
                                "`{}` is not a name for a set",
                                crate::host::shown(&name.value)
                            ))
                            .hint("use letters, digits and `-`, so that no host looks like it"),
                    );
                }
                if document.file.strip_prefix("preset:") == Some(&name.value) {
                    sets.insert(document.file.to_string(), set);
                }
                sets.insert(name.value.clone(), set);
            }
        }
        let mut compiler = Self { sets, problems };
        for set in documents.iter().flat_map(|document| &document.sets) {
            for host in &set.hosts {
                match compiler.sets.contains_key(&host.value) {
                    true => compiler.problems.push(
                        host.at
                            .error(format!("`{}` is a set; sets do not nest", host.value)),
                    ),
                    false => drop(compiler.host(host)),
                }
            }
        }
        compiler
    }

    /// Host entries with sets put in their places.
    fn hosts(&mut self, entries: &[At<String>]) -> Vec<HostPattern> {
        let mut patterns = Vec::new();
        for entry in entries {
            match self.sets.get(&entry.value) {
                // What is wrong in a set was said at the set.
                Some(set) => patterns.extend(
                    set.hosts
                        .iter()
                        .filter_map(|host| HostPattern::parse(&host.value).ok()),
                ),
                None => patterns.extend(self.host(entry)),
            }
        }
        patterns
    }

    fn host(&mut self, entry: &At<String>) -> Option<HostPattern> {
        let text = entry.value.as_str();
        if let Some(preset) = text.strip_prefix("preset:") {
            let problem = entry.at.error(format!(
                "no included file has the set `{}`",
                crate::host::shown(text)
            ));
            self.problems.push(problem.hint(format!(
                "add `preset:{}` to `include`",
                crate::host::shown(preset)
            )));
            return None;
        }
        match HostPattern::parse(text) {
            Ok(HostPattern::Name(name)) if !text.contains('.') && name != "localhost" => {
                let known: Vec<&str> = self.sets.keys().map(String::as_str).collect();
                let meant = match crate::document::closest(text, &known) {
                    Some(near) => format!("did you mean `{near}`? "),
                    None => String::new(),
                };
                let problem = entry
                    .at
                    .error(format!("no set is called `{}`", crate::host::shown(text)));
                self.problems.push(problem.hint(format!(
                    "{meant}a host name without a domain is written with a dot at its end: `{name}.`"
                )));
                None
            }
            Ok(pattern) => {
                self.problems.extend(check::breadth(&pattern, entry));
                Some(pattern)
            }
            Err(fault) => {
                let mut problem = entry.at.error(fault.why);
                problem.hint = fault.hint;
                self.problems.push(problem);
                None
            }
        }
    }

    fn credentials<'d>(&mut self, documents: &'d [Document]) -> (Vec<Credential>, Vec<&'d CredentialPart>) {
        let mut credentials: Vec<Credential> = Vec::new();
        let mut parts: Vec<&CredentialPart> = Vec::new();
        for part in documents.iter().flat_map(|document| &document.credentials) {
            if let Some(first) = parts.iter().find(|first| first.name.value == part.name.value) {
                self.problems.push(part.name.at.error(format!(
                    "credential `{}` is defined twice; first at {}",
                    part.name.value, first.name.at
                )));
                continue;
            }
            let hosts = self.hosts(&part.hosts);
            if hosts.contains(&HostPattern::Any) {
                let problem = part
                    .name
                    .at
                    .error(format!("credential `{}` may go to any host", part.name.value));
                self.problems.push(problem.hint("name the hosts that may see it"));
            }
            credentials.push(Credential {
                name: part.name.value.clone(),
                from: part.from.clone(),
                hosts: hosts.iter().map(ToString::to_string).collect(),
                places: part.places.clone(),
                env: part.env.as_ref().map(|env| env.value.clone()),
            });
            parts.push(part);
        }
        (credentials, parts)
    }

    fn rules(&mut self, documents: &[Document], credentials: &[Credential]) -> Vec<Rule> {
        let mut rules: Vec<Rule> = Vec::new();
        for part in documents.iter().flat_map(|document| &document.rules) {
            if part.id.value == "default" {
                self.problems.push(
                    part.id
                        .at
                        .error("`default` is what no rule names; call the rule something else"),
                );
            }
            if let Some(first) = rules.iter().find(|rule| rule.id == part.id.value) {
                let message = format!("rule `{}` is defined twice; first at {}", part.id.value, first.at);
                self.problems.push(
                    part.id
                        .at
                        .error(message)
                        .hint("each rule has its own id; refusals and logs use it"),
                );
            }
            rules.push(self.rule(part, credentials));
        }
        rules
    }

    fn rule(&mut self, part: &RulePart, credentials: &[Credential]) -> Rule {
        check::rule_part(part, self.problems);
        let effect = part.effect.value;
        let to = &part.to;
        let hosts = match &to.hosts {
            Some(hosts) => self.hosts(hosts),
            None => vec![HostPattern::Any],
        };
        let ports = match (&to.ports, effect) {
            (Some(ports), _) => ports.clone(),
            (None, Effect::Allow) => vec![(DEFAULT_PORT, DEFAULT_PORT)],
            // What refuses, refuses on every port.
            (None, _) => Vec::new(),
        };
        let private = match &to.private {
            Some(private) if private.value => hosts
                .iter()
                .filter_map(|pattern| match pattern {
                    HostPattern::Net(net) => Some(*net),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        Rule {
            id: part.id.value.clone(),
            at: part.id.at.clone(),
            effect,
            hosts,
            ports,
            protocol: match (&to.protocol, effect) {
                (Some(protocol), _) => Some(protocol.value),
                (None, Effect::Allow) => Some(Protocol::Http),
                (None, _) => None,
            },
            methods: to
                .methods
                .iter()
                .flatten()
                .map(|method| method.value.clone())
                .collect(),
            paths: to
                .paths
                .iter()
                .flatten()
                .filter_map(|path| self.path(path))
                .collect(),
            private,
            who: part
                .who
                .iter()
                .map(|who| (who.fact.value.clone(), who.values.clone()))
                .collect(),
            uses: part
                .uses
                .iter()
                .filter_map(|name| self.credential(name, credentials))
                .collect(),
            terms: match (&part.terms, effect) {
                (Some(terms), _) => Some(terms.value),
                (None, Effect::Ask) => Some(crate::document::TermsPart::person()),
                (None, _) => None,
            },
            hint: part.hint.clone(),
        }
    }

    fn path(&mut self, path: &At<String>) -> Option<PathPattern> {
        match PathPattern::parse(&path.value) {
            Ok(pattern) => Some(pattern),
            Err((why, hint)) => {
                let mut problem = path.at.error(why);
                problem.hint = hint;
                self.problems.push(problem);
                None
            }
        }
    }

    fn credential(&mut self, name: &At<String>, credentials: &[Credential]) -> Option<usize> {
        let found = credentials
            .iter()
            .position(|credential| credential.name == name.value);
        if found.is_none() {
            let known: Vec<&str> = credentials
                .iter()
                .map(|credential| credential.name.as_str())
                .collect();
            let problem = name.at.error(format!(
                "no credential is called `{}`",
                crate::host::shown(&name.value)
            ));
            self.problems
                .push(match crate::document::closest(&name.value, &known) {
                    Some(near) => problem.hint(format!("did you mean `{near}`?")),
                    None => problem.hint("define it under `credentials`"),
                });
        }
        found
    }
}
