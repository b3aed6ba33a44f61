//! Documents of one layer to rules and credentials: sets and names resolved, each part checked.
use crate::check;
use crate::diagnostic::At;
use crate::document::{CredentialPart, Document, Effect, RulePart};
use crate::host_names::{Breadth, HostNames};
use crate::host_pattern::HostPattern;
use crate::path_pattern::PathPattern;
use crate::rule::Rule;
use crate::{Credential, Layer, Problem, Protocol};
use std::collections::HashMap;

/// Port of an allow rule that names none.
const DEFAULT_PORT: u16 = 443;
/// Most rules of one policy.
const RULE_LIMIT: usize = 10_000;
/// Most credentials of one policy.
const CREDENTIAL_LIMIT: usize = 1_000;

/// Compiles the files of one layer.
pub(crate) struct Compiler<'a> {
    hosts: HostNames<'a>,
    layer: Layer,
    problems: &'a mut Vec<Problem>,
}

/// What is compiled so far, of the layers above and of this one.
#[derive(Default)]
pub(crate) struct Compiled<'d> {
    pub(crate) credentials: Vec<Credential>,
    /// Where each credential comes from.
    pub(crate) parts: Vec<&'d CredentialPart>,
    pub(crate) rules: Vec<Rule>,
    /// The first rule of each id.
    first: HashMap<&'d str, &'d RulePart>,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(documents: &'a [Document], layer: Layer, problems: &'a mut Vec<Problem>) -> Self {
        Self {
            hosts: HostNames::new(documents, problems),
            layer,
            problems,
        }
    }

    pub(crate) fn credentials<'d>(&mut self, documents: &'d [Document], compiled: &mut Compiled<'d>) {
        let Compiled {
            credentials, parts, ..
        } = compiled;
        for part in documents.iter().flat_map(|document| &document.credentials) {
            if let Some(first) = parts.iter().find(|first| first.name.value == part.name.value) {
                self.problems.push(part.name.at.error(format!(
                    "credential `{}` is defined twice; first at {}",
                    part.name.value, first.name.at
                )));
                continue;
            }
            if credentials.len() >= CREDENTIAL_LIMIT {
                let message = format!("a policy has at most {CREDENTIAL_LIMIT} credentials");
                self.problems.push(part.name.at.error(message));
                break;
            }
            let hosts = self.hosts.resolve(&part.hosts, Breadth::Warn, self.problems);
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
                patterns: hosts,
                places: part.places.clone(),
                env: part.env.as_ref().map(|env| env.value.clone()),
                ttl: part.ttl,
            });
            parts.push(part);
        }
    }

    /// Its `use` may name what the layers above bind, and what this one does.
    pub(crate) fn rules<'d>(&mut self, documents: &'d [Document], compiled: &mut Compiled<'d>) {
        let Compiled {
            credentials,
            rules,
            first,
            ..
        } = compiled;
        for part in documents.iter().flat_map(|document| &document.rules) {
            let id = part.id.value.as_str();
            if rules.len() >= RULE_LIMIT {
                self.problems.push(
                    part.id
                        .at
                        .error(format!("a policy has at most {RULE_LIMIT} rules")),
                );
                break;
            }
            if id == "default" {
                let message = "`default` is what no rule names; call the rule something else";
                self.problems.push(part.id.at.error(message));
            }
            if let Some(earlier) = first.get(id) {
                let message = format!("rule `{id}` is defined twice; first at {}", earlier.id.at);
                let problem = part.id.at.error(message);
                self.problems
                    .push(problem.hint("each rule has its own id; refusals and logs use it"));
            }
            first.entry(id).or_insert(part);
            rules.push(self.rule(part, credentials));
        }
    }

    fn rule(&mut self, part: &RulePart, credentials: &[Credential]) -> Rule {
        check::rule_part(part, self.problems);
        let effect = part.effect.value;
        let to = &part.to;
        let breadth = if effect == Effect::Deny {
            Breadth::Fine
        } else {
            Breadth::Warn
        };
        let hosts = match &to.hosts {
            Some(hosts) => self.hosts.resolve(hosts, breadth, self.problems),
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
                (Some(terms), _) => Some(terms.value.clone()),
                (None, Effect::Ask) => Some(crate::document::TermsPart::person()),
                (None, _) => None,
            },
            hint: part.hint.clone(),
            layer: self.layer,
            observe: part.observe.is_some(),
            limits: part.limit.as_ref().map(|limit| limit.value.clone()),
            during: part.during.as_ref().map(|during| during.value.clone()),
            widen: part.widen.iter().map(|layer| layer.value).collect(),
            encoded_slash: to.encoded_slash.as_ref().is_some_and(|slash| slash.value),
            git: crate::rule::GitMatch::default(),
            databases: Vec::new(),
            users: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
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
