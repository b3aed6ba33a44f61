//! What is wrong or odd across a whole policy: errors that would change its meaning, warnings that somebody should look at.
mod bindings;
mod known;
mod lists;
mod protocol;
mod repeated;

use crate::diagnostic::At;
use crate::document::{CredentialPart, DefaultPart, Document, Effect, RulePart};
use crate::git_match::GitMatch;
use crate::host_pattern::HostPattern;
use crate::rule::Rule;
use crate::{Code, Credential, Problem, Protocol};
pub(crate) use known::hosts as known_hosts;
pub(crate) use lists::unused_sets;
pub(crate) use repeated::long_grants;

/// Fields of one rule that do not go together.
pub(crate) fn rule_part(part: &RulePart, problems: &mut Vec<Problem>) {
    let effect = part.effect.value;
    let to = &part.to;
    let id = &part.id;
    if to.hosts.is_none() && effect != Effect::Deny {
        problems.push(
            id.at
                .error(format!("rule `{}` names no host", id.value))
                .hint("write `host: \"*\"` if it is meant for every host"),
        );
    }
    protocol::check(part, problems);
    if let Some(name) = part
        .uses
        .first()
        .filter(|_| effect == Effect::Deny && part.terms.is_none())
    {
        problems.push(name.at.error("`use` has no meaning in a rule that only denies"));
    }
    if let Some(limit) = part
        .limit
        .as_ref()
        .filter(|_| effect == Effect::Deny && part.terms.is_none())
    {
        problems.push(
            limit
                .at
                .error("`limit` has no meaning in a rule that only denies"),
        );
    }
    if let Some(leaks) = part
        .leaks
        .as_ref()
        .filter(|_| effect == Effect::Deny && part.terms.is_none())
    {
        problems.push(
            leaks
                .at
                .error("`leaks` has no meaning in a rule that only denies"),
        );
    }
    private(part, problems);
}

fn private(part: &RulePart, problems: &mut Vec<Problem>) {
    let Some(private) = part.to.private.as_ref().filter(|private| private.value) else {
        return;
    };
    if part.effect.value == Effect::Deny && part.terms.is_none() {
        problems.push(
            private
                .at
                .error("`private` has no meaning in a rule that only denies"),
        );
    }
    let names_one = |host: &At<String>| matches!(HostPattern::parse(&host.value), Ok(HostPattern::Net(_)));
    // A set may hold addresses: its name is no address itself, so that only plain lists are judged.
    let plain = part
        .to
        .hosts
        .iter()
        .flatten()
        .all(|host| host.value.contains(['.', ':', '*']));
    if plain && !part.to.hosts.iter().flatten().any(names_one) {
        problems.push(
            private
                .at
                .error("`private: true` opens only addresses that the rule itself names, and it names none")
                .hint("add the address or range to `host`, for example `10.0.0.0/8`"),
        );
    }
}

/// What concerns whole files.
pub(crate) fn documents(documents: &[Document], problems: &mut Vec<Problem>) {
    for (number, document) in documents.iter().enumerate() {
        lists::entries(document, problems);
        if let Some(default) = &document.default
            && default.value == DefaultPart::Allow
        {
            problems.push(match number {
                0 => default
                    .at
                    .warning("`default: allow` lets pass what no rule names")
                    .code(Code::DefaultAllow)
                    .hint("the safe default is `deny`"),
                _ => default
                    .at
                    .error("an included file cannot set `default: allow`")
                    .hint("remove it"),
            });
        }
        if let Some(at) = document.observe.as_ref().filter(|_| number > 0) {
            let problem = at.error("an included file cannot set `mode: observe`");
            problems.push(problem.hint("remove it; single rules may have it"));
        }
    }
}

/// What does not belong into a file of tests alone.
pub(crate) fn only_tests(documents: &[Document], problems: &mut Vec<Problem>) {
    for document in documents {
        let sets = document.sets.iter().map(|set| &set.name.at);
        let credentials = document.credentials.iter().map(|credential| &credential.name.at);
        let rules = document.rules.iter().map(|rule| &rule.id.at);
        let includes = document.include.iter().map(|include| &include.at);
        let default = document.default.iter().map(|default| &default.at);
        let mut others = sets
            .chain(credentials)
            .chain(rules)
            .chain(includes)
            .chain(default)
            .chain(&document.observe);
        if let Some(at) = others.next() {
            problems.push(
                at.error("a file of tests holds `version`, `name` and `tests` only")
                    .hint("write this into the policy"),
            );
        }
    }
}

/// Rules that tests name and nobody has written.
pub(crate) fn tests<'d>(
    documents: impl Iterator<Item = &'d Document>,
    rules: &[Rule],
    problems: &mut Vec<Problem>,
) {
    let mut known: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    known.push("default");
    for rule in documents
        .flat_map(|document| &document.tests)
        .filter_map(|test| test.rule.as_ref())
    {
        if known.contains(&rule.value.as_str()) {
            continue;
        }
        let problem = rule
            .at
            .error(format!("no rule is called `{}`", crate::host::shown(&rule.value)))
            .code(Code::UnknownName);
        problems.push(match crate::document::closest(&rule.value, &known) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem,
        });
    }
}

/// Grants that may last longer than this deserve a warning.
const LONGEST_RUN: jiff::SignedDuration = jiff::SignedDuration::from_hours(7 * 24);

/// Rules are compared with each other only up to this many host entries in all: beyond, it would take too long.
const COMPARED_LIMIT: usize = 4_000;

/// Whether a policy is small enough to compare its rules with each other.
fn is_comparable(rules: &[Rule]) -> bool {
    rules.iter().map(|rule| rule.hosts.len()).sum::<usize>() <= COMPARED_LIMIT
}

/// Rules that can never decide, or that stand in each other's way.
pub(crate) fn rules(rules: &[Rule], problems: &mut Vec<Problem>) {
    problems.extend(long_grants(rules, LONGEST_RUN));
    if !is_comparable(rules) {
        return;
    }
    repeated::rules(rules, problems);
    let denies: Vec<&Rule> = rules.iter().filter(|rule| rule.effect == Effect::Deny).collect();
    for rule in rules.iter().filter(|rule| rule.effect != Effect::Deny) {
        if let Some(deny) = denies.iter().find(|deny| shadows(deny, rule)) {
            let message = format!(
                "rule `{}` never decides: rule `{}` denies all that it names",
                rule.id, deny.id
            );
            problems.push(rule.at.warning(message).code(Code::ShadowedRule));
            continue;
        }
        if !is_unread(rule.protocol) || rule.effect == Effect::Ask {
            continue;
        }
        let looks = |other: &&Rule| {
            let looks = other.is_fine() || other.protocol.is_some_and(|protocol| !is_unread(Some(protocol)));
            other.id != rule.id && looks && meet(other, rule)
        };
        if let Some(other) = rules.iter().find(looks) {
            problems.push(
                rule.at
                    .warning(format!("rule `{}` passes unread what rule `{}` wants to look at: the latter wins, and streams are opened", rule.id, other.id))
                    .code(Code::UnreadRule)
                    .hint("give them different hosts or ports"),
            );
        }
    }
}

/// Whether a rule of this protocol passes what nobody has read.
fn is_unread(protocol: Option<Protocol>) -> bool {
    matches!(protocol, Some(Protocol::Tcp | Protocol::Tls))
}

/// Whether `deny` refuses everything that `rule` names.
fn shadows(deny: &Rule, rule: &Rule) -> bool {
    let hosts = !rule.hosts.is_empty()
        && rule
            .hosts
            .iter()
            .all(|host| deny.hosts.iter().any(|own| own.covers(host)));
    let ports = deny.ports.is_empty()
        || (!rule.ports.is_empty()
            && rule
                .ports
                .iter()
                .all(|(low, high)| deny.ports.iter().any(|(from, to)| from <= low && high <= to)));
    let methods = deny.methods.is_empty()
        || (!rule.methods.is_empty() && rule.methods.iter().all(|method| deny.methods.contains(method)));
    let paths = deny.paths.is_empty()
        || (!rule.paths.is_empty() && rule.paths.iter().all(|path| deny.paths.contains(path)));
    let protocol = deny.protocol.is_none() || deny.protocol == rule.protocol;
    // Of the rest, that it says nothing is all that is looked at.
    let plain = deny.git == GitMatch::default()
        && deny.databases.is_empty()
        && deny.users.is_empty()
        && deny.headers.is_empty()
        && deny.query.is_empty();
    let always = deny.who.is_empty() && deny.terms.is_none() && deny.during.is_none() && !deny.observe;
    hosts && ports && methods && paths && protocol && plain && always
}

/// Whether some host and port is named by both.
fn meet(a: &Rule, b: &Rule) -> bool {
    let ports = a.ports.is_empty()
        || b.ports.is_empty()
        || a.ports
            .iter()
            .any(|(low, high)| b.ports.iter().any(|(from, to)| low <= to && from <= high));
    ports
        && a.hosts
            .iter()
            .any(|host| b.hosts.iter().any(|other| host.overlaps(other)))
}

/// Credentials that go nowhere, or clash.
pub(crate) fn credentials(
    credentials: &[Credential],
    parts: &[&CredentialPart],
    rules: &[Rule],
    problems: &mut Vec<Problem>,
) {
    for (number, (credential, part)) in credentials.iter().zip(parts).enumerate() {
        if let Some(env) = &part.env
            && let Some(first) = parts[..number]
                .iter()
                .find(|first| first.env.as_ref().is_some_and(|e| e.value == env.value))
        {
            problems.push(env.at.error(format!(
                "credential `{}` already has the variable `{}`",
                first.name.value, env.value
            )));
        }
        if is_comparable(rules) {
            bindings::reached((number, credential), part, rules, problems);
        }
    }
}
