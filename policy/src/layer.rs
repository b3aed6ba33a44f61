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
