//! Host entries of rules and credentials: sets are put in their places, everything else is read as a pattern.
use crate::Problem;
use crate::diagnostic::At;
use crate::document::{Document, SetPart, closest};
use crate::host::shown;
use crate::host_pattern::HostPattern;
use std::collections::HashMap;

/// Most host entries of one policy after sets are put in their places.
const EXPANDED_LIMIT: usize = 200_000;

/// Whether a pattern that names more than anybody can oversee deserves a warning: where it only refuses, it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breadth {
    Warn,
    Fine,
}

/// The sets of a policy, by name.
pub(crate) struct HostNames<'a> {
    /// Also as `preset:NAME` for the set `NAME` of that preset.
    sets: HashMap<String, &'a SetPart>,
    expanded: usize,
}

impl<'a> HostNames<'a> {
    pub(crate) fn new(documents: &'a [Document], problems: &mut Vec<Problem>) -> Self {
        let mut names = Self {
            sets: HashMap::new(),
            expanded: 0,
        };
        for document in documents {
            for set in &document.sets {
                names.add(document, set, problems);
            }
        }
        for set in documents.iter().flat_map(|document| &document.sets) {
            for host in &set.entries {
                if names.sets.contains_key(&host.value) {
                    problems.push(
                        host.at
                            .error(format!("`{}` is a set; sets do not nest", host.value)),
                    );
                } else {
                    names.pattern(host, Breadth::Fine, problems);
                }
            }
        }
        names
    }

    fn add(&mut self, document: &Document, set: &'a SetPart, problems: &mut Vec<Problem>) {
        let name = &set.name;
        if let Some(first) = self.sets.get(&name.value) {
            let message = format!(
                "set `{}` is defined twice; first at {}",
                shown(&name.value),
                first.name.at
            );
            problems.push(name.at.error(message));
            return;
        }
        if name.value.contains(['.', '*', '/', ':', ' ']) {
            let problem = name
                .at
                .error(format!("`{}` is not a name for a set", shown(&name.value)));
            problems.push(problem.hint("use letters, digits and `-`, so that no host looks like it"));
        }
        if document.file.strip_prefix("preset:") == Some(&name.value) {
            self.sets.insert(document.file.to_string(), set);
        }
        self.sets.insert(name.value.clone(), set);
    }

    /// The patterns of a `host` or `hosts` list.
    pub(crate) fn resolve(
        &mut self,
        entries: &[At<String>],
        breadth: Breadth,
        problems: &mut Vec<Problem>,
    ) -> Vec<HostPattern> {
        let mut patterns = Vec::new();
        for entry in entries {
            match self.sets.get(&entry.value) {
                Some(set) => {
                    self.expanded += set.entries.len();
                    if self.expanded > EXPANDED_LIMIT {
                        problems.push(
                            entry
                                .at
                                .error(format!("the rules name more than {EXPANDED_LIMIT} hosts in all")),
                        );
                        return patterns;
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
                None => patterns.extend(self.pattern(entry, breadth, problems)),
            }
        }
        patterns
    }

    fn pattern(
        &self,
        entry: &At<String>,
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
                problems.push(self.unknown_set(entry, &name));
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

    fn unknown_set(&self, entry: &At<String>, name: &str) -> Problem {
        let known: Vec<&str> = self.sets.keys().map(String::as_str).collect();
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
