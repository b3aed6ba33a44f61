//! Lints over compiled rules: two that say the same, and grants that outlive every run.
use crate::diagnostic::{Position, is_broken};
use crate::rule::Rule;
use crate::{Code, Problem};
use std::collections::HashMap;

/// Rules that differ in nothing but name and hint. Where something is wrong, parts of rules are left out: nothing is said then.
pub(super) fn rules(rules: &[Rule], problems: &mut Vec<Problem>) {
    if is_broken(problems) {
        return;
    }
    let mut first: HashMap<String, &Rule> = HashMap::new();
    for rule in rules {
        // All fields count, also those that the language gets later.
        let mut plain = rule.clone();
        plain.id.clear();
        plain.hint = None;
        plain.at = Position {
            file: "".into(),
            line: 1,
            column: 1,
        };
        match first.get(&*format!("{plain:?}")) {
            None => {
                first.insert(format!("{plain:?}"), rule);
            }
            Some(earlier) => {
                let message = format!(
                    "rule `{}` says the same as rule `{}` at {}",
                    rule.id, earlier.id, earlier.at
                );
                let problem = rule.at.warning(message).code(Code::DuplicateRule);
                problems.push(problem.hint("remove one of them"));
            }
        }
    }
}

/// Rules whose grants may last longer than the longest run: they end with the run anyway, and promise more than that.
pub(crate) fn long_grants(rules: &[Rule], longest_run: jiff::SignedDuration) -> Vec<Problem> {
    let outlives = |rule: &&Rule| {
        rule.terms
            .as_ref()
            .is_some_and(|terms| terms.expires > longest_run)
    };
    let problem = |rule: &Rule| {
        let message = format!(
            "a grant for rule `{}` may last longer than any run, which is {} h at most",
            rule.id,
            longest_run.as_hours()
        );
        rule.at
            .warning(message)
            .code(Code::LongGrant)
            .hint("shorten `expires`: a grant ends with its run")
    };
    rules.iter().filter(outlives).map(problem).collect()
}
