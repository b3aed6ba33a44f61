//! Layers of a policy: the organisation's ceiling, then team, repository and run, each of which only narrows the one above.
use crate::PolicyText;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who wrote a part of the policy; the earlier ones bind the later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The ceiling over everything.
    Organisation,
    /// A team's.
    Team,
    /// A repository's.
    Repository,
    /// What came with the run.
    Run,
}

impl Layer {
    /// As it is written in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Organisation => "organisation",
            Self::Team => "team",
            Self::Repository => "repository",
            Self::Run => "run",
        }
    }
}

impl Layer {
    /// As it is written in policies.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.as_str() == text)
    }

    /// From the ceiling down.
    pub(crate) const ALL: [Self; 4] = [Self::Organisation, Self::Team, Self::Repository, Self::Run];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Layers(u8);

impl Layers {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, layer: Layer) -> bool {
        self.0 & layer.bit() != 0
    }

    pub(crate) fn insert(&mut self, layer: Layer) {
        self.0 |= layer.bit();
    }

    /// Those that are in either.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are in both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Layer> {
        Layer::ALL.into_iter().filter(move |layer| self.contains(*layer))
    }
}

impl FromIterator<Layer> for Layers {
    fn from_iter<I: IntoIterator<Item = Layer>>(layers: I) -> Self {
        let mut set = Self::default();
        layers.into_iter().for_each(|layer| set.insert(layer));
        set
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One layer's files: the first is its policy, the others are what its `include` may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTexts {
    /// Whose.
    pub layer: Layer,
    /// Files.
    pub texts: Vec<PolicyText>,
}
