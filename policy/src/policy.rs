//! A compiled policy: the rules, found by host.
use crate::check;
use crate::document::{DefaultPart, TestPart};
use crate::host_index::HostIndex;
use crate::layer::Layers;
use crate::leaks::Leaks;
use crate::rule::Rule;
use crate::{Credential, KnownHost, Layer, Problem};
use std::sync::Arc;

/// A compiled policy. Immutable; a change makes a new one.
#[derive(Debug)]
pub struct Policy {
    pub(crate) hash: String,
    pub(crate) rules: Arc<[Rule]>,
    pub(crate) index: HostIndex,
    pub(crate) credentials: Arc<[Credential]>,
    /// Of all layers: none takes a key away.
    pub(crate) known_hosts: Arc<[KnownHost]>,
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
    /// The keys by which hosts are known over ssh, of all layers.
    pub fn known_hosts(&self) -> &Arc<[KnownHost]> {
        &self.known_hosts
    }
    /// What somebody should look at, though the policy can be used.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
    /// The same with other rules in the same places; without tests and warnings, which are about the text.
    pub(crate) fn with_rules(&self, rules: Vec<Rule>) -> Self {
        Self {
            hash: self.hash.clone(),
            index: HostIndex::new(&rules),
            rules: rules.into(),
            credentials: self.credentials.clone(),
            known_hosts: self.known_hosts.clone(),
            layers: self.layers.clone(),
            tests: Vec::new(),
            warnings: Vec::new(),
        }
    }
    /// The rules whose grants may last longer than this, as warnings. [`Policy::warnings`] has them for runs of 7 days.
    pub fn long_grants(&self, longest_run: jiff::SignedDuration) -> Vec<Problem> {
        check::long_grants(&self.rules, longest_run)
    }
}

/// What one layer does apart from its rules.
#[derive(Debug, Clone)]
pub(crate) struct LayerPlan {
    pub(crate) layer: Layer,
    /// What becomes of what no rule names; `Inherit` never in the uppermost.
    pub(crate) default: DefaultPart,
    /// What it refuses is told, and let pass.
    pub(crate) observe: bool,
    /// What it says of secrets in whatever is allowed.
    pub(crate) leaks: Leaks,
    /// The layers below that may allow what no rule here names.
    pub(crate) reach: Layers,
}

impl LayerPlan {
    /// Where there is no layer at all, nothing is allowed.
    pub(crate) fn nothing() -> Self {
        Self {
            layer: Layer::Run,
            default: DefaultPart::Deny,
            observe: false,
            leaks: Leaks::default(),
            reach: Layers::default(),
        }
    }
}
