//! Credentials by name: where they come from, where they may go. Never a value.
use crate::Destination;
use crate::host_pattern::HostPattern;
use serde::{Deserialize, Serialize};

/// A binding of a secret to hosts and places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Name in the policy.
    pub name: String,
    /// Where the gateway finds the value.
    pub from: Source,
    /// Host patterns, in the policy's syntax, canonical.
    pub hosts: Vec<String>,
    /// Places in a request.
    pub places: Vec<Place>,
    /// Environment variable in which the agent finds the placeholder.
    pub env: Option<String>,
}

impl Credential {
    /// Whether this credential may be sent to that host. A pattern that cannot be read admits nothing.
    pub fn admits(&self, destination: &Destination) -> bool {
        self.hosts
            .iter()
            .any(|host| HostPattern::parse(host).is_ok_and(|pattern| pattern.matches(&destination.host)))
    }
}

/// Where a secret's value is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The gateway's encrypted store, by name.
    Store(String),
    /// A variable of the gateway's environment whose name begins with `SALLYPORT_SECRET_`.
    Env(String),
    /// A file below `secret-files` in the gateway's state directory, by its relative path.
    File(String),
}

/// Where in a request a credential may stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `Authorization: Bearer ...` (also `token ...`).
    Bearer,
    /// `Authorization: Basic ...`, in the user name or the password.
    Basic,
    /// A header, by lower-case name.
    Header(String),
    /// A query parameter, by name.
    Query(String),
}
