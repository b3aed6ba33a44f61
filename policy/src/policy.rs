//! A compiled policy: the rules, found by host.
use crate::document::{DefaultPart, TestPart};
use crate::host_pattern::HostPattern;
use crate::layer::Layers;
use crate::rule::Rule;
use crate::{Credential, Host, Layer, Problem};
use ipnet::IpNet;
use std::collections::HashMap;
use std::sync::Arc;

/// A compiled policy. Immutable; a change makes a new one.
#[derive(Debug)]
pub struct Policy {
    pub(crate) hash: String,
    pub(crate) rules: Arc<[Rule]>,
    pub(crate) index: HostIndex,
    pub(crate) credentials: Arc<[Credential]>,
    /// From the ceiling down; at least one.
    pub(crate) layers: Vec<LayerPlan>,
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

/// What one layer does apart from its rules.
#[derive(Debug)]
pub(crate) struct LayerPlan {
    pub(crate) layer: Layer,
    /// What becomes of what no rule names; `Inherit` never in the uppermost.
    pub(crate) default: DefaultPart,
    /// What it refuses is told, and let pass.
    pub(crate) observe: bool,
    /// The layers below that may allow what no rule here names.
    pub(crate) reach: Layers,
}

/// Which rules may name a host: one look-up per label of a name instead of a walk over all rules.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    names: HashMap<String, Vec<u32>>,
    under: HashMap<String, Vec<u32>>,
    any: Vec<u32>,
    nets: Vec<(IpNet, u32)>,
}

impl HostIndex {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (number, rule) in (0u32..).zip(rules) {
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

    /// Calls with the numbers of the rules that name this host, in no order, and maybe more than once.
    pub(crate) fn each(&self, host: &Host, mut visit: impl FnMut(u32)) {
        self.any.iter().copied().for_each(&mut visit);
        match host {
            Host::Name(name) => {
                self.names
                    .get(&**name)
                    .into_iter()
                    .flatten()
                    .copied()
                    .for_each(&mut visit);
                let mut rest = &**name;
                while let Some((_, domain)) = rest.split_once('.') {
                    self.under
                        .get(domain)
                        .into_iter()
                        .flatten()
                        .copied()
                        .for_each(&mut visit);
                    rest = domain;
                }
            }
            Host::Address(address) => self
                .nets
                .iter()
                .filter(|(net, _)| net.contains(address))
                .for_each(|(_, number)| visit(*number)),
        }
    }

    /// The same, in the policy's order, each once.
    pub(crate) fn candidates(&self, host: &Host) -> Vec<u32> {
        let mut found = Vec::new();
        self.each(host, |number| found.push(number));
        found.sort_unstable();
        found.dedup();
        found
    }
}
