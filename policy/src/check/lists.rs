//! Lints over what is written: entries that stand in one list twice, and sets that nothing names.
use crate::diagnostic::{At, is_broken};
use crate::document::{Document, RulePart};
use crate::host_pattern::HostPattern;
use crate::{Code, Problem};
use std::collections::HashMap;

/// Lists of one file.
pub(super) fn entries(document: &Document, problems: &mut Vec<Problem>) {
    for set in &document.sets {
        twice(&set.entries, problems);
    }
    for credential in &document.credentials {
        twice(&credential.hosts, problems);
    }
    for rule in &document.rules {
        for list in [&rule.to.hosts, &rule.to.methods, &rule.to.paths]
            .into_iter()
            .flatten()
        {
            twice(list, problems);
        }
        twice(&rule.uses, problems);
    }
}

/// Entries that mean the same, hosts also where they are spelt differently.
fn twice(entries: &[At<String>], problems: &mut Vec<Problem>) {
    let mut first: HashMap<String, &At<String>> = HashMap::new();
    for entry in entries {
        let meaning = match HostPattern::parse(&entry.value) {
            Ok(pattern) if entry.value.contains('.') => pattern.to_string(),
            _ => entry.value.clone(),
        };
        match first.get(&meaning) {
            None => {
                first.insert(meaning, entry);
            }
            Some(earlier) => {
                let message = format!(
                    "`{}` stands in this list already, in line {}",
                    crate::host::shown(&entry.value),
                    earlier.at.line
                );
                let problem = entry.at.warning(message).code(Code::DuplicateEntry);
                problems.push(problem.hint("remove one of them"));
            }
        }
    }
}

/// Sets of the policy's own file; those of an included one may be meant for others. Where something is wrong, a name may be
/// misspelt: nothing is said then.
pub(crate) fn unused_sets(documents: &[Document], problems: &mut Vec<Problem>) {
    let Some(first) = documents.first() else { return };
    let used = |name: &str| {
        let names = |entries: &[At<String>]| entries.iter().any(|entry| entry.value == name);
        documents.iter().any(|document| {
            document.rules.iter().any(|rule| names_in(rule, &names))
                || document
                    .credentials
                    .iter()
                    .any(|credential| names(&credential.hosts))
        })
    };
    // A file of sets alone is meant to be included, as presets are.
    let shared =
        first.file.starts_with("preset:") || (first.rules.is_empty() && first.credentials.is_empty());
    if is_broken(problems) || shared {
        return;
    }
    for set in first.sets.iter().filter(|set| !used(&set.name.value)) {
        let message = format!("nothing names set `{}`", crate::host::shown(&set.name.value));
        let problem = set.name.at.warning(message).code(Code::UnusedSet);
        problems.push(problem.hint("remove it, or write it as `host` of a rule"));
    }
}

fn names_in(rule: &RulePart, names: &impl Fn(&[At<String>]) -> bool) -> bool {
    [&rule.to.hosts, &rule.to.paths]
        .into_iter()
        .flatten()
        .any(|entries| names(entries))
}
