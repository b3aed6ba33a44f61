//! The answer to a request, with its reasons; only `Policy::decide` makes a `Permit`.
use crate::address::classify;
use crate::layer::Layers;
use crate::leaks::Leaks;
use crate::rule::Rule;
use crate::wording;
use crate::{Credential, Destination, Grant, Layer, Limits, Protocol, Request};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The right to send one request (or open one stream) to one destination. Cannot be made outside this crate.
///
/// It is made without allocating where it rests on rules alone: it remembers which rules allow, and tells the rest when asked.
#[derive(Clone)]
pub struct Permit {
    pub(crate) destination: Destination,
    pub(crate) protocol: Protocol,
    pub(crate) rules: Arc<[Rule]>,
    pub(crate) bindings: Arc<[Credential]>,
    /// Of the credentials that must be asked for, those that a grant lends here, by number.
    pub(crate) lent: Vec<usize>,
    /// The rule that is named as the reason; none where the default allows, or where only observation lets pass.
    pub(crate) first: Option<u32>,
    /// The allowing rules that say more than `allow`: credentials, limits, secrets, private ranges. In the policy's order.
    pub(crate) telling: Numbers,
    /// Whether a credential may be put in at all.
    pub(crate) carries: bool,
    /// What policies and allowing rules say together of secrets in it.
    pub(crate) leaks: Leaks,
    /// The layers that allow; a special address must be opened by each.
    pub(crate) deciding: Layers,
    pub(crate) grants: Vec<String>,
    /// The first grant that it rests on, for the reason.
    pub(crate) lifted: Option<Box<Grant>>,
    pub(crate) observed: Option<Box<Refusal>>,
}

/// Numbers of rules; more than these few are rare, and cost an allocation.
pub(crate) type Numbers = smallvec::SmallVec<[u32; 8]>;

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

impl Refusal {
    /// All of it as one text for the agent; `host` is what was asked for.
    pub fn told(&self, host: &str) -> String {
        let mut text = format!("{} (rule `{}`)", self.reason.text, self.reason.rule);
        if let Some(hint) = &self.hint {
            text.push_str("; ");
            text.push_str(hint.trim_end_matches('.'));
        }
        text.push_str("; ");
        text.push_str(&self.remedy.told(host));
        text
    }
}

impl Remedy {
    /// As the agent is told; `host` is what was asked for.
    pub fn told(&self, host: &str) -> String {
        match self {
            Self::None => "asking for access cannot change this".to_owned(),
            Self::RequestAccess => {
                format!("`sallyport-shim request-access {host}` is granted at once by the policy")
            }
            Self::AskPerson => format!("`sallyport-shim request-access {host}` asks a person for it"),
        }
    }
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

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("destination", &self.destination)
            .field("rule", &self.rule())
            .field("protocol", &self.protocol)
            .field("credentials", &self.credentials())
            .field("grants", &self.grants)
            .field("observed", &self.observed)
            .finish_non_exhaustive()
    }
}

impl Permit {
    /// Where it leads.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }
    /// Id of the rule that allowed it; `default` where none did.
    pub fn rule(&self) -> &str {
        self.first().map_or("default", |rule| rule.id.as_str())
    }
    /// What allowed it, in words; `request` is what was decided.
    pub fn reason(&self, request: &Request) -> Reason {
        let text = match (self.first(), &self.lifted, &self.observed) {
            (Some(rule), Some(grant), _) => wording::lifted(rule, grant, request),
            (Some(rule), None, _) => wording::allowed(rule, request),
            (None, _, Some(refusal)) => wording::let_pass(refusal),
            (None, ..) => wording::by_default(request),
        };
        Reason {
            rule: self.rule().to_owned(),
            text,
        }
    }
    /// The refusal that this would have been, were the rule or the policy that refuses not in `mode: observe`. Where a whole
    /// policy observes, no credential goes out under such a permit, and no special address may be dialled.
    pub fn observed(&self) -> Option<&Refusal> {
        self.observed.as_deref()
    }
    /// Bounds to keep, each with the id of the rule that sets it: all of them hold.
    pub fn limits(&self) -> impl Iterator<Item = (&str, &Limits)> {
        // A preset's rule that stands in several layers bounds once.
        let again = |number: usize, id: &str| self.telling().take(number).any(|earlier| earlier.id == id);
        self.telling()
            .enumerate()
            .filter(move |(number, rule)| !again(*number, &rule.id))
            .filter_map(|(_, rule)| rule.limits.as_ref().map(|limits| (rule.id.as_str(), limits)))
    }
    /// What becomes of secrets in it: what the rules that allow it and the policies of all layers say together, the stricter of
    /// two words.
    pub fn leaks(&self) -> Leaks {
        self.leaks
    }
    /// What may pass: at connect `Tls` means that a ClientHello with this name must come, `Tcp` anything.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
    /// Names of the credentials that may be put in here (the rules' `use`, cut with each credential's own `hosts`).
    /// Empty for plain http and for what passes unread.
    pub fn credentials(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for credential in self.bound() {
            let name = credential.name.as_str();
            if !names.contains(&name) && credential.admits(&self.destination) {
                names.push(name);
            }
        }
        names
    }
    /// Whether this credential might be put in here, had it been asked for: [`crate::GrantRefused`] says who lends it.
    pub fn withholds(&self, name: &str) -> bool {
        self.withheld().contains(&name)
    }
    /// Names of the credentials that might be put in here, had they been asked for.
    pub fn withheld(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (number, credential) in self.used() {
            let name = credential.name.as_str();
            if !self.is_open(number, credential)
                && !names.contains(&name)
                && credential.admits(&self.destination)
            {
                names.push(name);
            }
        }
        names
    }
    /// Whether this credential may be put in here: whether it is among [`Permit::credentials`].
    pub fn carries(&self, name: &str) -> bool {
        self.bound()
            .any(|credential| credential.name == name && credential.admits(&self.destination))
    }
    /// Ids of all grants that this permit uses up once each: more than one where several rules refused.
    pub fn grants(&self) -> &[String] {
        &self.grants
    }
    /// Whether a resolved address may be dialled under this permit: private, loopback, link-local, multicast,
    /// unspecified and metadata ranges only where, in each layer that allows, a rule has `private: true` and names the address
    /// or a range around it. The error is the sentence for the refusal, with the range's name.
    pub fn admits_address(&self, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        match classify(address) {
            Some(class) if !self.opens(address) => Err(format!(
                "`{}` leads to `{address}`, a {class} address, and no rule that allows it names that address with `private: true`",
                self.destination.host
            )),
            _ => Ok(()),
        }
    }

    fn opens(&self, address: IpAddr) -> bool {
        let opened = |layer: Layer| {
            self.telling()
                .filter(|rule| rule.layer == layer)
                .any(|rule| rule.private.iter().any(|net| net.contains(&address)))
        };
        !self.deciding.is_empty() && self.deciding.iter().all(opened)
    }

    fn first(&self) -> Option<&Rule> {
        self.rules.get(usize::try_from(self.first?).ok()?)
    }

    fn telling(&self) -> impl Iterator<Item = &Rule> {
        self.telling
            .iter()
            .filter_map(|number| self.rules.get(usize::try_from(*number).ok()?))
    }

    /// What the rules' `use` names and what need not be asked for, or was; whatever the credentials' own hosts.
    fn bound(&self) -> impl Iterator<Item = &Credential> {
        self.used()
            .filter(|(number, credential)| self.is_open(*number, credential))
            .map(|(_, credential)| credential)
    }

    /// What the rules' `use` names.
    fn used(&self) -> impl Iterator<Item = (usize, &Credential)> {
        self.telling()
            .filter(|_| self.carries)
            .flat_map(|rule| &rule.uses)
            .filter_map(|number| Some((*number, self.bindings.get(*number)?)))
    }

    fn is_open(&self, number: usize, credential: &Credential) -> bool {
        !credential.is_lent() || self.lent.contains(&number)
    }
}
