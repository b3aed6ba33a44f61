//! Wire types of the policies that stand in the gateway besides what comes with each run.
use sallyport_policy::{Layer, PolicyText, Problem, Who};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which standing policy: a layer, and whose it is there. As text `organisation`, `team/NAME`, `repository/OWNER/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyKey {
    layer: Layer,
    name: String,
}

impl PolicyKey {
    /// From a layer and the team's name, or `OWNER/NAME` of the repository; the organisation has no name. The error says
    /// what is wanted.
    pub fn new(layer: Layer, name: &str) -> Result<Self, String> {
        let fine = match layer {
            Layer::Organisation => name.is_empty(),
            Layer::Team => is_plain(name),
            Layer::Repository => name
                .split_once('/')
                .is_some_and(|(owner, name)| is_plain(owner) && is_plain(name)),
            Layer::Run => {
                return Err("the layer `run` comes with each run and does not stand here".to_owned());
            }
        };
        let wanted = match layer {
            Layer::Organisation => "the organisation's policy has no name",
            Layer::Team => {
                "a team's name has letters, digits, `.`, `_` and `-`, and begins with none of the last three"
            }
            _ => "a repository is named `OWNER/NAME`",
        };
        let named = || Self {
            layer,
            name: name.to_owned(),
        };
        fine.then(named).ok_or_else(|| wanted.to_owned())
    }

    /// Layer.
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// Team, or `OWNER/NAME`; empty for the organisation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a session of these facts is under this policy.
    pub fn binds(&self, who: &Who) -> bool {
        match self.layer {
            Layer::Organisation => true,
            Layer::Team => who.team == self.name,
            Layer::Repository => who.repository == self.name,
            Layer::Run => false,
        }
    }
}

/// 1 to 100 letters, digits, `.`, `_` and `-`, beginning with a letter or digit: harmless as a file's name.
fn is_plain(name: &str) -> bool {
    name.len() <= 100
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layer.as_str())?;
        if self.name.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", self.name)
    }
}

impl From<PolicyKey> for String {
    fn from(key: PolicyKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PolicyKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (layer, name) = text.split_once('/').unwrap_or((&text, ""));
        let standing = Layer::parse(layer).filter(|layer| *layer != Layer::Run);
        let layer = standing.ok_or("`organisation`, `team/NAME` or `repository/OWNER/NAME` is wanted")?;
        Self::new(layer, name)
    }
}

/// What is to be checked below the policies that stand in the gateway, without opening a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyCheck {
    /// Whose it would be.
    pub who: Who,
    /// The run's policy first, then what its `include` names.
    pub policies: Vec<PolicyText>,
}

/// All policies that stand in the gateway, besides what comes with each run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingPolicies {
    /// By layer and name.
    pub policies: Vec<StandingPolicy>,
    /// Files in the folder that no policy uses, relative to it: misnamed, perhaps.
    pub strays: Vec<String>,
    /// Sessions for which nothing passes, since their policy cannot be used.
    pub closed: Vec<String>,
}

/// One standing policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingPolicy {
    /// Whose.
    pub key: PolicyKey,
    /// In force; none where no version was ever good.
    pub version: Option<PolicyVersion>,
    /// Why its file on disk is not in force. Empty where all is well.
    pub broken: Vec<Problem>,
    /// Whether the file on disk is another than what is in force, and stays so until it changes: after a rollback or a
    /// publication whose file could not be written.
    pub differs: bool,
}

/// One version of a standing policy. Versions are numbered from 1, kept for ever, and the newest is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// Number.
    pub number: u64,
    /// SHA-256 over its texts, hex.
    pub hash: String,
    /// Who put it in force: who was logged in, or the owner of the file.
    pub author: String,
    /// When (UTC).
    pub at: jiff::Timestamp,
    /// What was said about it.
    pub note: String,
    /// Whether it ends the policy instead of being one.
    pub withdrawn: bool,
}

/// A version with its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyEdition {
    /// Which.
    pub version: PolicyVersion,
    /// The policy first, then what its `include` names; names are relative to the folder of policies.
    pub texts: Vec<PolicyText>,
}

/// Puts a new version in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The policy first, then what its `include` names.
    pub texts: Vec<PolicyText>,
    /// Who.
    pub author: String,
    /// What is to be said about it.
    #[serde(default)]
    pub note: String,
}

/// Puts an old version in force again, as a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// Number of the old version.
    pub to: u64,
    /// Who.
    pub author: String,
}

/// Ends a standing policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withdrawal {
    /// Who.
    pub author: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_as_text_and_back() {
        for text in ["organisation", "team/web", "repository/acme/site.js"] {
            let key = PolicyKey::try_from(text.to_owned()).unwrap();
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn what_could_leave_the_folder_is_no_key() {
        for text in [
            "",
            "run",
            "organisation/x",
            "team",
            "team/",
            "team/..",
            "team/.hidden",
            "team/a/b",
            "team/a\\b",
            "repository/acme",
            "repository/../x",
            "repository/acme/..",
            "repository/a/b/c",
            "Team/web",
        ] {
            assert!(PolicyKey::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
