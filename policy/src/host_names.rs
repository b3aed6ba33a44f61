//! Host entries of rules and credentials: sets are put in their places, everything else is read as a pattern.
use crate::Problem;
use crate::diagnostic::At;
use crate::document::{Document, closest};
use crate::host::shown;
use crate::host_pattern::HostPattern;
use crate::sets::{self, Kind, Sets};

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
            .error(format!("no included file has the set `{}`", shown(text)));
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
        .error(format!("no set is called `{}`", shown(&entry.value)));
    problem.hint(format!(
        "{meant}a host name without a domain is written with a dot at its end: `{name}.`"
    ))
}

/// Patterns that name more than anybody can oversee.
fn warn(pattern: &HostPattern, entry: &At<String>, breadth: Breadth, problems: &mut Vec<Problem>) {
    if breadth == Breadth::Fine {
        return;
    }
    match pattern {
        HostPattern::Any => {
            let problem = entry.at.warning("`*` matches every host");
            problems.push(problem.hint("name the hosts, or a domain such as `*.example.com`"));
        }
        HostPattern::Under(domain) if is_public_suffix(domain) => {
            let message =
                format!("`*.{domain}` matches hosts of unrelated owners: `{domain}` is a public suffix");
            problems.push(entry.at.warning(message).hint("name the domains under it"));
        }
        HostPattern::Net(net) if net.prefix_len() == 0 => {
            problems.push(entry.at.warning(format!("`{net}` matches every address")));
        }
        _ => {}
    }
}

/// By the Public Suffix List; private top-level domains are not in it.
fn is_public_suffix(domain: &str) -> bool {
    psl::suffix(domain.as_bytes()).is_some_and(|suffix| suffix.is_known() && suffix == domain)
}
