//! Grants: overlays on one run's policy, with scope, uses and expiry.
use crate::path_pattern::{PathPattern, Slashes};
use crate::{Moment, Request};
use serde::{Deserialize, Serialize};

/// What an agent asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Host as the agent wrote it.
    pub host: String,
    /// Port; 443 where it says none.
    pub port: u16,
    /// Method, if only one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path, if only one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The credential that is wanted there, by its name in the policy; without it, the place itself is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// A permission beside the rules, for one run. Lifts exactly one refusing rule, or lends one credential, within its scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Id, given by whoever stores it.
    pub id: String,
    /// The rule whose refusal it lifts; empty where it lends a credential.
    pub rule: String,
    /// The credential that it lends for its host, at every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Canonical host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Methods; empty means those of the rule.
    pub methods: Vec<String>,
    /// Path pattern in the policy's own syntax; absent means those of the rule.
    pub path: Option<String>,
    /// How many requests are left; absent means any number.
    pub uses: Option<u64>,
    /// When it ends.
    pub expires_at: jiff::Timestamp,
    /// Who gave it: `policy` or a person's name.
    pub by: String,
}

impl Grant {
    /// Whether it is neither expired nor used up.
    pub fn is_live(&self, now: jiff::Timestamp) -> bool {
        now < self.expires_at && self.uses != Some(0)
    }

    /// Whether this request lies in its scope. At connect only host and port are known; an opaque stream is covered
    /// only by a grant that names neither methods nor path. A path that can be read in two ways is never covered by a path.
    pub fn covers(&self, request: &Request) -> bool {
        let destination = &request.destination;
        if self.port != destination.port || crate::Host::parse(&self.host).as_ref() != Ok(&destination.host) {
            return false;
        }
        match &request.moment {
            Moment::Connect => true,
            Moment::Opaque | Moment::Ssh(_) | Moment::Postgres(_) => {
                self.methods.is_empty() && self.path.is_none()
            }
            Moment::Http(http) => {
                (self.methods.is_empty() || self.methods.contains(&http.method))
                    && self.path.as_deref().is_none_or(|pattern| {
                        http.path.ambiguity().is_none()
                            && PathPattern::parse(pattern, Slashes::Plain)
                                .is_ok_and(|pattern| pattern.matches(&http.path))
                    })
            }
        }
    }
}

/// The live grants of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// In the order in which they were given.
    pub grants: Vec<Grant>,
}

impl Overlay {
    /// Whether a credential that must be asked for may be put in at this host.
    pub fn lends(&self, credential: &str, host: &crate::Host, now: jiff::Timestamp) -> bool {
        self.grants.iter().any(|grant| {
            grant.credential.as_deref() == Some(credential)
                && grant.is_live(now)
                && crate::Host::parse(&grant.host).as_ref() == Ok(host)
        })
    }
}

/// Why nothing is granted by the policy itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum GrantRefused {
    /// It is allowed already.
    #[error("this is allowed already, by rule `{rule}`")]
    AlreadyAllowed {
        /// The allowing rule.
        rule: String,
    },
    /// A person decides.
    #[error("rule `{rule}` is lifted by a person only")]
    NeedsPerson {
        /// The refusing rule.
        rule: String,
        /// Who may agree, as `team:NAME` or `user:NAME`; empty means whoever may approve at all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvers: Vec<String>,
    },
    /// No.
    #[error("rule `{rule}` cannot be lifted")]
    NotGrantable {
        /// The refusing rule, or `default`.
        rule: String,
    },
    /// The credential may be used there already.
    #[error("credential `{credential}` may be used at `{host}` already")]
    AlreadyLent {
        /// The credential.
        credential: String,
        /// Where.
        host: String,
    },
    /// A person decides about the credential.
    #[error("credential `{credential}` is lent by a person only")]
    CredentialNeedsPerson {
        /// The credential.
        credential: String,
        /// Who may agree, as `team:NAME` or `user:NAME`; empty means whoever may approve at all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvers: Vec<String>,
    },
    /// The policy has no such credential.
    #[error("there is no credential `{credential}`{}", known_names(.known))]
    NoCredential {
        /// As it was asked for.
        credential: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The credential never goes there.
    #[error("credential `{credential}` may not go to `{host}`: {why}")]
    CredentialElsewhere {
        /// The credential.
        credential: String,
        /// Where it was wanted.
        host: String,
        /// What stands in the way.
        why: String,
    },
    /// The question itself is malformed.
    #[error("{why}")]
    Malformed {
        /// What is wrong with it.
        why: String,
    },
}

fn known_names(known: &[String]) -> String {
    match known {
        [] => "; the policy has none".to_owned(),
        known => format!("; there are `{}`", known.join("`, `")),
    }
}
