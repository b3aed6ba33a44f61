//! One rule as written to one that can be matched: sets, credentials and what is left out are put in their places.
use crate::check;
use crate::condition::Condition;
use crate::diagnostic::At;
use crate::document::{ConditionPart, Effect, GitPart, RulePart, TermsPart, ToPart, closest};
use crate::git_match::GitMatch;
use crate::host::shown;
use crate::host_names::{self, Breadth};
use crate::host_pattern::HostPattern;
use crate::path::escaped;
use crate::path_names;
use crate::path_pattern::{PathPattern, Slashes};
use crate::rule::Rule;
use crate::sets::Sets;
use crate::{Code, Credential, Layer, Problem, Protocol};
use ipnet::IpNet;

/// The rule, with everything that is wrong with it among the problems.
pub(crate) fn rule(
    part: &RulePart,
    credentials: &[Credential],
    sets: &mut Sets<'_>,
    problems: &mut Vec<Problem>,
) -> Rule {
    check::rule_part(part, problems);
    let effect = part.effect.value;
    let to = &part.to;
    let hosts = hosts(part, sets, problems);
    let encoded_slash = to.encoded_slash.as_ref().is_some_and(|slash| slash.value);
    let slashes = match encoded_slash {
        true => Slashes::Encoded,
        false => Slashes::Plain,
    };
    let protocol = match (&to.protocol, effect) {
        (Some(protocol), _) => Some(protocol.value),
        (None, Effect::Allow) => Some(Protocol::Http),
        (None, _) => None,
    };
    Rule {
        id: part.id.value.clone(),
        at: part.id.at.clone(),
        effect,
        private: private(to, &hosts),
        hosts,
        ports: ports(to, protocol, effect),
        protocol,
        methods: texts(&to.methods),
        paths: path_names::resolve(to.paths.as_deref().unwrap_or_default(), sets, slashes, problems),
        who: part
            .who
            .iter()
            .map(|who| (who.fact.value.clone(), who.values.clone()))
            .collect(),
        uses: part
            .uses
            .iter()
            .filter_map(|name| credential(name, credentials, problems))
            .collect(),
        terms: match (&part.terms, effect) {
            (Some(terms), _) => Some(terms.value.clone()),
            (None, Effect::Ask) => Some(TermsPart::person()),
            (None, _) => None,
        },
        hint: part.hint.clone(),
        layer: Layer::Run,
        observe: part.observe.is_some(),
        leaks: part.leaks.as_ref().map(|leaks| leaks.value).unwrap_or_default(),
        limits: part.limit.as_ref().map(|limit| limit.value.clone()),
        during: part.during.as_ref().map(|during| during.value.clone()),
        widen: part.widen.iter().map(|layer| layer.value).collect(),
        encoded_slash,
        git: git(&to.git, problems),
        databases: texts(&to.database),
        users: texts(&to.user),
        headers: to.headers.iter().map(condition).collect(),
        query: to.query.iter().map(condition).collect(),
    }
}

fn hosts(part: &RulePart, sets: &mut Sets<'_>, problems: &mut Vec<Problem>) -> Vec<HostPattern> {
    let breadth = match part.effect.value {
        Effect::Deny => Breadth::Fine,
        Effect::Allow | Effect::Ask => Breadth::Warn,
    };
    match &part.to.hosts {
        Some(hosts) => host_names::resolve(hosts, sets, breadth, problems),
        None => vec![HostPattern::Any],
    }
}

/// What refuses, refuses on every port unless it names some.
fn ports(to: &ToPart, protocol: Option<Protocol>, effect: Effect) -> Vec<(u16, u16)> {
    match (&to.ports, effect) {
        (Some(ports), _) => ports.clone(),
        (None, Effect::Allow) => protocol
            .and_then(Protocol::port)
            .map(|port| (port, port))
            .into_iter()
            .collect(),
        (None, _) => Vec::new(),
    }
}

fn private(to: &ToPart, hosts: &[HostPattern]) -> Vec<IpNet> {
    if !to.private.as_ref().is_some_and(|private| private.value) {
        return Vec::new();
    }
    hosts
        .iter()
        .filter_map(|pattern| match pattern {
            HostPattern::Net(net) => Some(*net),
            _ => None,
        })
        .collect()
}

fn texts(list: &Option<Vec<At<String>>>) -> Vec<String> {
    list.iter().flatten().map(|text| text.value.clone()).collect()
}

fn condition(part: &ConditionPart) -> Condition {
    Condition {
        name: part.name.value.clone(),
        values: part.values.iter().map(|value| value.value.clone()).collect(),
    }
}

fn git(part: &GitPart, problems: &mut Vec<Problem>) -> GitMatch {
    let mut patterns = |list: &Option<Vec<At<String>>>, canonical: fn(&str) -> String| {
        list.iter()
            .flatten()
            .filter_map(
                |text| match PathPattern::parse(&canonical(&text.value), Slashes::Plain) {
                    Ok(pattern) => Some(pattern),
                    Err((why, hint)) => {
                        let mut problem = text.at.error(why);
                        problem.hint = hint;
                        problems.push(problem);
                        None
                    }
                },
            )
            .collect()
    };
    GitMatch {
        repositories: patterns(&part.repository, repository_pattern),
        access: part.access.as_ref().map(|access| access.value),
        refs: patterns(&part.refs, ref_pattern),
        force: part.force.as_ref().map(|force| force.value),
    }
}

/// `acme/*` and `/acme/*.git` as a pattern over paths.
fn repository_pattern(text: &str) -> String {
    let name = text.trim_start_matches('/');
    format!("/{}", name.strip_suffix(".git").unwrap_or(name))
}

/// `agent/**` is a branch; `refs/...` is a full name. Escapes mean nothing in a ref.
fn ref_pattern(text: &str) -> String {
    let name = escaped(text).replace("%7B", "{").replace("%7D", "}");
    match name == "refs" || name.starts_with("refs/") || name == "**" {
        true => format!("/{name}"),
        false => format!("/refs/heads/{name}"),
    }
}

fn credential(name: &At<String>, credentials: &[Credential], problems: &mut Vec<Problem>) -> Option<usize> {
    let found = credentials
        .iter()
        .position(|credential| credential.name == name.value);
    if found.is_none() {
        let known: Vec<&str> = credentials
            .iter()
            .map(|credential| credential.name.as_str())
            .collect();
        let problem = name
            .at
            .error(format!("no credential is called `{}`", shown(&name.value)))
            .code(Code::UnknownName);
        problems.push(match closest(&name.value, &known) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem.hint("define it under `credentials`"),
        });
    }
    found
}
