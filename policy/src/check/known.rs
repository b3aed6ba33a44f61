//! Lints over rules that let ssh through to hosts whose key nobody has written down.
use crate::diagnostic::is_broken;
use crate::document::Effect;
use crate::known_host::KnownHost;
use crate::rule::Rule;
use crate::{Code, Problem, Protocol};

/// The port at which git speaks ssh.
const SSH: u16 = 22;

/// Hosts that such a rule names and whose key is not known: the gateway refuses them. Where something is wrong, a line may be
/// misspelt: nothing is said then.
pub(crate) fn hosts(rules: &[Rule], known: &[KnownHost], problems: &mut Vec<Problem>) {
    if is_broken(problems) {
        return;
    }
    for rule in rules
        .iter()
        .filter(|rule| rule.effect != Effect::Deny && is_ssh(rule))
    {
        let unknown: Vec<String> = rule
            .hosts
            .iter()
            .filter(|host| !known.iter().any(|known| known.meets(host, &rule.ports)))
            .map(ToString::to_string)
            .collect();
        // Nobody can mend a shipped file.
        if unknown.is_empty() || rule.at.file.starts_with("preset:") {
            continue;
        }
        let message = format!(
            "rule `{}` lets ssh through to {}, whose key is not among `known-hosts`: it will be refused",
            rule.id,
            crate::space::few(&unknown.iter().map(|host| format!("`{host}`")).collect::<Vec<_>>())
        );
        let problem = rule.at.warning(message).code(Code::UnknownHostKey);
        problems.push(
            problem.hint("add the line that `ssh-keyscan -t ed25519 HOST` prints, once you have checked it"),
        );
    }
}

fn is_ssh(rule: &Rule) -> bool {
    match rule.protocol {
        Some(Protocol::Ssh) => true,
        Some(Protocol::Git) => rule.ports.iter().any(|(low, high)| (*low..=*high).contains(&SSH)),
        _ => false,
    }
}
