//! Host entries of rules and credentials: sets are put in their places, everything else is read as a pattern.
use crate::diagnostic::At;
use crate::document::{Document, closest};
use crate::host::shown;
use crate::host_pattern::HostPattern;
use crate::sets::{self, Kind, Sets};
use crate::{Code, Problem};
use ipnet::{IpNet, Ipv6Net};

/// Whether a pattern that names more than anybody can oversee deserves a warning: where it only refuses, it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breadth {
    Warn,
    Fine,
}

/// The hosts of all sets, which are judged where they stand.
pub(crate) fn check(documents: &[Document], sets: &Sets<'_>, problems: &mut Vec<Problem>) {
    let entries = documents
        .iter()
        .flat_map(|document| &document.sets)
        .filter(|set| sets::kind(set) == Kind::Hosts)
        .flat_map(|set| &set.entries);
    for host in entries.filter(|host| sets.get(&host.value).is_none() && !host.value.starts_with('/')) {
        pattern(host, sets, Breadth::Fine, problems);
    }
}

/// The patterns of a `host` or `hosts` list.
pub(crate) fn resolve(
    entries: &[At<String>],
    sets: &mut Sets<'_>,
    breadth: Breadth,
    problems: &mut Vec<Problem>,
) -> Vec<HostPattern> {
    let mut patterns = Vec::new();
    for entry in entries {
        let Some(set) = sets.get(&entry.value) else {
            patterns.extend(pattern(entry, sets, breadth, problems));
            continue;
        };
        if !sets.admit(set, Kind::Hosts, &entry.at, problems) {
            continue;
        }
        for host in &set.entries {
            // What is wrong in a set was said at the set.
            let Ok(pattern) = HostPattern::parse(&host.value) else {
                continue;
            };
            warn(&pattern, host, breadth, problems);
            patterns.push(pattern);
        }
    }
    patterns
}

fn pattern(
    entry: &At<String>,
    sets: &Sets<'_>,
    breadth: Breadth,
    problems: &mut Vec<Problem>,
) -> Option<HostPattern> {
    let text = entry.value.as_str();
    if let Some(preset) = text.strip_prefix("preset:") {
        let problem = entry
            .at
            .error(format!("no included file has the set `{}`", shown(text)))
            .code(Code::UnknownName);
        problems.push(problem.hint(format!("add `preset:{}` to `include`", shown(preset))));
        return None;
    }
    match HostPattern::parse(text) {
        Ok(HostPattern::Name(name)) if !text.contains('.') && name != "localhost" => {
            problems.push(unknown_set(entry, sets, &name));
            None
        }
        Ok(pattern) => {
            warn(&pattern, entry, breadth, problems);
            Some(pattern)
        }
        Err(fault) => {
            let mut problem = entry.at.error(fault.why);
            problem.hint = fault.hint;
            problems.push(problem);
            None
        }
    }
}

fn unknown_set(entry: &At<String>, sets: &Sets<'_>, name: &str) -> Problem {
    let known: Vec<&str> = sets.names(Kind::Hosts).collect();
    let meant = match closest(&entry.value, &known) {
        Some(near) => format!("did you mean `{near}`? "),
        None => String::new(),
    };
    let problem = entry
        .at
        .error(format!("no set is called `{}`", shown(&entry.value)))
        .code(Code::UnknownName);
    problem.hint(format!(
        "{meant}a host name without a domain is written with a dot at its end: `{name}.`"
    ))
}

/// The shortest prefix that needs no second look, by family: the largest ranges that one owner has.
const SHORTEST_V4: u8 = 8;
const SHORTEST_V6: u8 = 19;

/// Patterns that name more than anybody can oversee.
fn warn(pattern: &HostPattern, entry: &At<String>, breadth: Breadth, problems: &mut Vec<Problem>) {
    if breadth == Breadth::Fine {
        return;
    }
    let problem = match pattern {
        HostPattern::Any => entry
            .at
            .warning("`*` matches every host")
            .hint("name the hosts, or a domain such as `*.example.com`"),
        HostPattern::Under(domain) if is_public_suffix(domain) => {
            let message =
                format!("`*.{domain}` matches hosts of unrelated owners: `{domain}` is a public suffix");
            entry.at.warning(message).hint("name the domains under it")
        }
        HostPattern::Net(net) if net.prefix_len() == 0 => {
            entry.at.warning(format!("`{net}` matches every address"))
        }
        HostPattern::Net(net) if is_broad(net) => entry
            .at
            .warning(format!("`{net}` matches addresses of unrelated owners"))
            .hint("name the ranges that are meant"),
        _ => return,
    };
    problems.push(problem.code(Code::BroadHost));
}

/// Whether no single owner has so many addresses. Private ranges have one, however large.
fn is_broad(net: &IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.prefix_len() < SHORTEST_V4,
        IpNet::V6(net) => net.prefix_len() < SHORTEST_V6 && !is_private(net),
    }
}

/// fc00::/7 and what lies in it.
fn is_private(net: &Ipv6Net) -> bool {
    net.prefix_len() >= 7 && crate::classify(net.addr().into()).is_some()
}

/// By the Public Suffix List; private top-level domains are not in it.
fn is_public_suffix(domain: &str) -> bool {
    psl::suffix(domain.as_bytes()).is_some_and(|suffix| suffix.is_known() && suffix == domain)
}
