//! A need with what a policy says to it.
use super::need::Need;
use crate::Refusal;
use serde::Serialize;

/// A need and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is needed.
    #[serde(flatten)]
    pub need: Need,
    /// What the policy says.
    pub outcome: Outcome,
}

/// What a policy says to a need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Outcome {
    /// It is there.
    Met {
        /// The rule that allows it, or the credential.
        by: String,
    },
    /// A person must agree first.
    Ask {
        /// The request that was decided.
        request: String,
        /// The answer.
        refusal: Refusal,
    },
    /// It is not allowed.
    Refused {
        /// The request that was decided.
        request: String,
        /// The answer.
        refusal: Refusal,
    },
    /// No credential of the policy has this variable, or goes to this host.
    NoCredential,
    /// A credential is there, and no rule lets it go out.
    Unused {
        /// The credential.
        credential: String,
    },
    /// Nobody knows where it comes from: no preset says.
    Unknown,
}

impl Outcome {
    /// Whether something is missing.
    pub fn is_gap(&self) -> bool {
        !matches!(self, Self::Met { .. } | Self::Ask { .. })
    }
}
