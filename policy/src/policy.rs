//! A compiled policy: the rules, found by host.
use crate::document::TestPart;
use crate::host_pattern::HostPattern;
use crate::rule::Rule;
use crate::{Credential, Host, Problem};
use ipnet::IpNet;
use std::collections::HashMap;

/// A compiled policy. Immutable; a change makes a new one.
#[derive(Debug)]
pub struct Policy {
    pub(crate) hash: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: HostIndex,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) default_allow: bool,
    pub(crate) tests: Vec<TestPart>,
    pub(crate) warnings: Vec<Problem>,
}

impl Policy {
    /// SHA-256 over the texts, in hex; those of shipped presets that the policy includes are among them.
    pub fn hash(&self) -> &str {
        &self.hash
    }
    /// The credential bindings.
    pub fn credentials(&self) -> &[Credential] {
        &self.credentials
    }
    /// What somebody should look at, though the policy can be used.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

/// Which rules may name a host: one look-up per label of a name instead of a walk over all rules.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    names: HashMap<String, Vec<usize>>,
    under: HashMap<String, Vec<usize>>,
    any: Vec<usize>,
    nets: Vec<(IpNet, usize)>,
}

impl HostIndex {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            for pattern in &rule.hosts {
                match pattern {
                    HostPattern::Any => index.any.push(number),
                    HostPattern::Name(name) => index.names.entry(name.clone()).or_default().push(number),
                    HostPattern::Under(domain) => index.under.entry(domain.clone()).or_default().push(number),
                    HostPattern::Net(net) => index.nets.push((*net, number)),
                }
            }
        }
        index
    }

    /// Numbers of the rules that name this host, in the policy's order.
    pub(crate) fn candidates(&self, host: &Host) -> Vec<usize> {
        let mut found = self.any.clone();
        match host {
            Host::Name(name) => {
                found.extend(self.names.get(name).into_iter().flatten());
                let mut rest = name.as_str();
                while let Some((_, domain)) = rest.split_once('.') {
                    found.extend(self.under.get(domain).into_iter().flatten());
                    rest = domain;
                }
            }
            Host::Address(address) => {
                found.extend(
                    self.nets
                        .iter()
                        .filter(|(net, _)| net.contains(address))
                        .map(|(_, number)| number),
                );
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}
