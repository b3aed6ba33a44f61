//! What a decision is about: who wants to go where, and what is known of it so far.
use crate::{CanonicalPath, Host};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Host and port as the client named them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Name or address dialled.
    pub host: Host,
    /// TCP port.
    pub port: u16,
}

/// One HTTP request, reduced to what rules can look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method, as sent (methods are case-sensitive, RFC 9110 section 9.1).
    pub method: String,
    /// Path in the form in which it will be sent.
    pub path: CanonicalPath,
    /// Query without `?`, as sent.
    pub query: Option<String>,
    /// Whether the agent speaks TLS on this connection; plain http never gets a credential by default.
    pub tls: bool,
}

/// How much is known when a decision is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// Name and port only.
    Connect,
    /// The first bytes are not HTTP nor TLS that may be intercepted: an opaque stream.
    Opaque,
    /// A whole HTTP request head.
    Http(HttpRequest),
}

/// A question to the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub destination: Destination,
    /// What is known.
    pub moment: Moment,
}

/// Facts that the supervisor vouches for; never what the agent says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Who {
    /// Run id.
    pub run: String,
    /// Person who launched the run.
    pub user: String,
    /// Team of that person.
    pub team: String,
    /// Repository worked on, as `owner/name`.
    pub repository: String,
    /// Environment's name.
    pub environment: String,
    /// Kind of machine (`namespace`, `qemu`, ...).
    pub machine: String,
    /// Run that started this one, if any.
    pub parent_run: String,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
}
