//! Lints over credentials: hosts of a binding to which no rule takes it.
use crate::document::CredentialPart;
use crate::host_pattern::HostPattern;
use crate::rule::Rule;
use crate::{Code, Credential, Problem};

/// Hosts that are named one by one in a message; of more, only how many.
const NAMED_HOSTS: usize = 3;

/// What is odd about one credential; `number` is its place among all.
pub(super) fn reached(
    (number, credential): (usize, &Credential),
    part: &CredentialPart,
    rules: &[Rule],
    problems: &mut Vec<Problem>,
) {
    let using: Vec<&Rule> = rules.iter().filter(|rule| rule.uses.contains(&number)).collect();
    let is_reached = |host: &HostPattern| {
        using
            .iter()
            .any(|rule| rule.hosts.iter().any(|own| own.overlaps(host)))
    };
    let hosts: Vec<HostPattern> = credential
        .hosts
        .iter()
        .filter_map(|host| HostPattern::parse(host).ok())
        .collect();
    let left: Vec<&HostPattern> = hosts.iter().filter(|host| !is_reached(host)).collect();
    let name = &credential.name;
    let (message, hint) = if left.is_empty() {
        return;
    } else if left.len() == hosts.len() {
        (
            format!("no rule takes credential `{name}` to any of its hosts"),
            format!("add `use: [{name}]` to a rule that allows them"),
        )
    } else {
        let named: Vec<String> = left
            .iter()
            .take(NAMED_HOSTS)
            .map(|host| format!("`{host}`"))
            .collect();
        let more = match left.len().saturating_sub(NAMED_HOSTS) {
            0 => String::new(),
            more => format!(" and {more} more of its hosts"),
        };
        (
            format!("no rule takes credential `{name}` to {}{more}", named.join(", ")),
            format!("remove them from `hosts`, or add `use: [{name}]` to a rule that allows them"),
        )
    };
    let problem = part.name.at.warning(message).code(Code::UnusedCredential);
    problems.push(problem.hint(hint));
}
