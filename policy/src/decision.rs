//! The answer to a request, with its reasons; only `Policy::decide` makes a `Permit`.
use crate::address::classify;
use crate::{Destination, Limits, Protocol};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The right to send one request (or open one stream) to one destination. Cannot be made outside this crate.
#[derive(Debug, Clone)]
pub struct Permit {
    pub(crate) destination: Destination,
    pub(crate) reason: Reason,
    pub(crate) protocol: Protocol,
    pub(crate) credentials: Vec<String>,
    pub(crate) grants: Vec<String>,
    /// Special ranges that the allowing rules name with `private: true`.
    pub(crate) private: Vec<IpNet>,
    pub(crate) observed: Option<Refusal>,
    pub(crate) limits: Vec<(String, Limits)>,
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
    /// Id of the rule that allowed it; `default` where none did.
    pub fn rule(&self) -> &str {
        &self.reason.rule
    }
    /// The refusal that this would have been, were the rule or the policy that refuses not in `mode: observe`. No credential goes
    /// out under such a permit unless a rule allows it besides.
    pub fn observed(&self) -> Option<&Refusal> {
        self.observed.as_ref()
    }
    /// Bounds to keep, each with the id of the rule that sets it: all of them hold.
    pub fn limits(&self) -> &[(String, Limits)] {
        &self.limits
    }
    /// What allowed it.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
    /// What may pass: at connect `Tls` means that a ClientHello with this name must come, `Tcp` anything.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
    /// Names of the credentials that may be put in here (the rule's `use`, cut with each credential's own `hosts`).
    /// Empty for plain http and for what passes unread.
    pub fn credentials(&self) -> &[String] {
        &self.credentials
    }
    /// Ids of all grants that this permit uses up once each: more than one where several rules refused.
    pub fn grants(&self) -> &[String] {
        &self.grants
    }
    /// Whether a resolved address may be dialled under this permit: private, loopback, link-local, multicast,
    /// unspecified and metadata ranges only where the allowing rule has `private: true` and names the address or a range around it.
    /// The error is the sentence for the refusal, with the range's name.
    pub fn admits_address(&self, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        match classify(address) {
            Some(class) if !self.private.iter().any(|net| net.contains(&address)) => Err(format!(
                "`{}` leads to `{address}`, a {class} address, and no rule that allows it names that address with `private: true`",
                self.destination.host
            )),
            _ => Ok(()),
        }
    }
}
