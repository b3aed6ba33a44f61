//! The answer to a request, with its reasons; only `Policy::decide` makes a `Permit`.
use crate::{
    Credential, Destination, Grant, GrantRefused, Overlay, PolicyText, Problem, Request, Wanted, Who,
};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A compiled policy. Immutable; a change makes a new one.
#[derive(Debug)]
pub struct Policy {
    hash: String,
    credentials: Vec<Credential>,
}

/// The right to send one request (or open one stream) to one destination. Cannot be made outside this crate.
#[derive(Debug, Clone)]
pub struct Permit {
    destination: Destination,
    reason: Reason,
    credentials: Vec<String>,
    grant: Option<String>,
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Id of the deciding rule; `default` where none matched.
    pub rule: String,
    /// One sentence for people and agents, lower case, with the input in backticks.
    pub text: String,
}

/// A refusal, as the agent will read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What decided.
    pub reason: Reason,
    /// What the agent may do about it.
    pub remedy: Remedy,
    /// The rule's `hint`, if it has one.
    pub hint: Option<String>,
}

/// What an agent may do after a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Remedy {
    /// Nothing: asking is useless.
    None,
    /// `request-access` is granted at once by the policy.
    RequestAccess,
    /// `request-access` goes to a person.
    AskPerson,
}

/// The answer at one moment.
#[derive(Debug, Clone)]
pub enum Decision {
    /// May be sent.
    Allow(Permit),
    /// Nothing may be sent yet: accept, look at what comes, and ask again with more.
    Inspect,
    /// A person must say yes first.
    Ask(Refusal),
    /// No.
    Deny(Refusal),
}

impl Permit {
    /// Where it leads.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }
    /// What allowed it.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
    /// Names of the credentials that may be put in here (the rule's `use`, cut with each credential's own `hosts`).
    pub fn credentials(&self) -> &[String] {
        &self.credentials
    }
    /// Id of the grant that this permit uses up once, if it rests on one.
    pub fn grant(&self) -> Option<&str> {
        self.grant.as_deref()
    }
    /// Whether a resolved address may be dialled under this permit: private, loopback, link-local, multicast,
    /// unspecified and metadata ranges only where the allowing rule has `private: true` and names the address or a range around it.
    /// The error is the sentence for the refusal, with the range's name.
    pub fn admits_address(&self, address: IpAddr) -> Result<(), String> {
        let _ = address;
        todo!()
    }
}

impl Policy {
    /// Parses, checks and compiles. `texts[0]` is the policy; the others are what its `include` may name. All problems at once.
    pub fn compile(texts: &[PolicyText]) -> Result<Self, Vec<Problem>> {
        let _ = texts;
        todo!()
    }
    /// SHA-256 over the texts, in hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }
    /// The credential bindings.
    pub fn credentials(&self) -> &[Credential] {
        &self.credentials
    }
    /// Decides. Total: every request has an answer, and what no rule names gets the default.
    pub fn decide(&self, request: &Request, who: &Who, overlay: &Overlay, now: jiff::Timestamp) -> Decision {
        let _ = (request, who, overlay, now);
        todo!()
    }
    /// What the policy itself grants to an agent that asks: a `grantable: {by: rule}` part, narrowed to what was asked.
    pub fn grant(&self, wanted: &Wanted, who: &Who, now: jiff::Timestamp) -> Result<Grant, GrantRefused> {
        let _ = (wanted, who, now);
        todo!()
    }
}
