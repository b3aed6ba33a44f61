//! Documents of one layer to rules and credentials: sets and names resolved, each part checked.
use crate::document::{CredentialPart, Document};
use crate::host_names::{self, Breadth};
use crate::host_pattern::HostPattern;
use crate::resolve;
use crate::rule::Rule;
use crate::sets::Sets;
use crate::{Code, Credential, Layer, Problem};
use std::collections::HashMap;

/// Most rules of one policy.
const RULE_LIMIT: usize = 10_000;
/// Most credentials of one policy.
const CREDENTIAL_LIMIT: usize = 1_000;

/// Compiles the files of one layer.
pub(crate) struct Compiler<'a> {
    sets: Sets<'a>,
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
    /// The number of the first rule of each id.
    first: HashMap<&'d str, usize>,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(documents: &'a [Document], layer: Layer, problems: &'a mut Vec<Problem>) -> Self {
        let sets = Sets::new(documents, problems);
        host_names::check(documents, &sets, problems);
        Self {
            sets,
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
                let message = format!(
                    "credential `{}` is defined twice; first at {}",
                    part.name.value, first.name.at
                );
                self.problems
                    .push(part.name.at.error(message).code(Code::DefinedTwice));
                continue;
            }
            if credentials.len() >= CREDENTIAL_LIMIT {
                let message = format!("a policy has at most {CREDENTIAL_LIMIT} credentials");
                self.problems.push(part.name.at.error(message));
                break;
            }
            let hosts = host_names::resolve(&part.hosts, &mut self.sets, Breadth::Warn, self.problems);
            if hosts.contains(&HostPattern::Any) {
                let problem = part
                    .name
                    .at
                    .error(format!("credential `{}` may go to any host", part.name.value));
                self.problems.push(problem.hint("name the hosts that may see it"));
            }
            credentials.push(Credential {
                name: part.name.value.clone(),
                answers: part.from.answers(),
                from: part.from.clone(),
                hosts: hosts.iter().map(ToString::to_string).collect(),
                patterns: hosts,
                places: part.places.clone(),
                env: part.env.as_ref().map(|env| env.value.clone()),
                ttl: part.ttl,
                purpose: part.purpose.clone(),
                user: part.user.clone(),
                terms: part.terms.as_ref().map(|terms| terms.value.clone()),
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
            let rule = Rule {
                layer: self.layer,
                ..resolve::rule(part, credentials, &mut self.sets, self.problems)
            };
            let earlier = first.get(id).and_then(|number| rules.get(*number));
            if let Some(earlier) = earlier.filter(|earlier| !stands_in_both(earlier, &rule)) {
                let message = format!("rule `{id}` is defined twice; first at {}", earlier.at);
                let problem = part.id.at.error(message).code(Code::DefinedTwice);
                self.problems
                    .push(problem.hint("each rule has its own id; refusals and logs use it"));
            }
            first.entry(id).or_insert(rules.len());
            rules.push(rule);
        }
    }
}

/// Whether it is one rule of a preset that two layers include: at the same place, saying the same. It has one id then.
fn stands_in_both(upper: &Rule, lower: &Rule) -> bool {
    let same = |lower: &Rule| format!("{upper:?}") == format!("{lower:?}");
    let of_preset = lower.at.file.starts_with("preset:") && upper.at == lower.at;
    of_preset
        && upper.layer != lower.layer
        && same(&Rule {
            layer: upper.layer,
            ..lower.clone()
        })
}
