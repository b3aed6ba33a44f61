//! What becomes of one request, as far as two policies are compared.
use crate::document::{GrantScope, TermsPart};
use crate::space::Candidate;
use crate::{Decision, Limits, Moment, Overlay, Permit, Policy, Refusal, Remedy};
use crate::{Protocol, space::Point};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// What is done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is sent.
    Allow,
    /// It is sent, and told as one that would be refused.
    Observe,
    /// A person must say yes first.
    Ask,
    /// It is not sent.
    Deny,
    /// Of a whole connection: it is looked at, request by request. Of a push: its refs are.
    Inspect,
}

/// An answer with all that goes with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Outcome {
    /// Whether it is sent.
    pub answer: Answer,
    /// Names of credentials that may be put in; with how and whence, where that differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// Bounds, in words, one entry a rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// What becomes of secrets in it, in words, where that is said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<String>,
    /// Special ranges that may be dialled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private: Vec<String>,
    /// How the agent may get it nevertheless, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grantable: Option<String>,
    /// `tls` or `tcp` where the connection passes without being looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<&'static str>,
}

/// Special addresses that some rule opens, each with the range that it stands for.
pub(super) type Doors = Vec<(String, IpAddr)>;

/// One policy's answer to this point, and the id of the rule that decides.
pub(super) fn outcome(
    policy: &Policy,
    point: &Point,
    candidates: &[Candidate<'_>],
    doors: &Doors,
    credential: &dyn Fn(&str) -> String,
) -> (Outcome, String) {
    let none = Overlay::default();
    let decision = policy.decide(&point.request, &point.who, &none, point.at);
    let mut outcome = Outcome {
        answer: Answer::Deny,
        credentials: Vec::new(),
        limits: Vec::new(),
        leaks: Vec::new(),
        private: Vec::new(),
        grantable: None,
        unread: None,
    };
    let rule = match &decision {
        Decision::Allow(permit) if point.request.moment == Moment::Connect => {
            outcome.answer = Answer::Allow;
            outcome.unread = Some(match permit.protocol() {
                Protocol::Tls => "tls",
                _ => "tcp",
            });
            permit.rule().to_owned()
        }
        Decision::Allow(permit) => {
            outcome.allow(permit, doors, credential);
            permit.rule().to_owned()
        }
        Decision::Ask(refusal) | Decision::Deny(refusal) => {
            if matches!(decision, Decision::Ask(_)) {
                outcome.answer = Answer::Ask;
            }
            outcome.grantable = grantable(refusal, candidates);
            refusal.reason.rule.clone()
        }
        Decision::Inspect => {
            outcome.answer = Answer::Inspect;
            String::new()
        }
    };
    (outcome, rule)
}

impl Outcome {
    fn allow(&mut self, permit: &Permit, doors: &Doors, credential: &dyn Fn(&str) -> String) {
        self.answer = match permit.observed() {
            Some(_) => Answer::Observe,
            None => Answer::Allow,
        };
        let names = permit.credentials().into_iter().chain(permit.withheld());
        self.credentials = names.map(credential).collect();
        self.credentials.sort();
        self.limits = permit.limits().map(|(_, limits)| bounds(limits)).collect();
        self.limits.sort();
        let leaks = permit.leaks();
        self.leaks = (!leaks.is_silent())
            .then(|| leaks.to_string())
            .into_iter()
            .collect();
        self.private = doors
            .iter()
            .filter(|(_, address)| permit.admits_address(*address).is_ok())
            .map(|(range, _)| range.clone())
            .collect();
    }
}

fn grantable(refusal: &Refusal, candidates: &[Candidate<'_>]) -> Option<String> {
    let by = match refusal.remedy {
        Remedy::None => return None,
        Remedy::RequestAccess => "by asking",
        Remedy::AskPerson => "by a person's yes",
    };
    let terms = candidates
        .iter()
        .find(|candidate| candidate.rule.id == refusal.reason.rule)
        .and_then(|candidate| candidate.rule.terms.as_ref());
    Some(match terms {
        Some(terms) => format!("{by}{}", words(terms)),
        None => by.to_owned(),
    })
}

/// The terms of a grant, in words.
pub(super) fn words(terms: &TermsPart) -> String {
    let mut words = format!(", for {:#}", terms.expires);
    if let Some(uses) = terms.uses {
        words.push_str(&format!(", {uses} times"));
    }
    if terms.scope == GrantScope::Request {
        words.push_str(", one method and path at a time");
    }
    if !terms.approvers.is_empty() {
        words.push_str(&format!(", of {}", terms.approvers.join(" or ")));
    }
    words
}

fn bounds(limits: &Limits) -> String {
    let mut words = Vec::new();
    let mut note = |what: &str, bound: Option<u64>| {
        words.extend(bound.map(|bound| format!("{what} {bound}")));
    };
    note("connections", limits.connections.map(u64::from));
    note("bytes_out", limits.bytes_out);
    note("request_bytes", limits.request_bytes);
    note("response_bytes", limits.response_bytes);
    note("bandwidth", limits.bandwidth);
    words.extend(
        limits
            .rate
            .map(|rate| format!("rate {} in {} s", rate.count, rate.seconds)),
    );
    words.join(", ")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.answer {
            Answer::Allow => "allowed",
            Answer::Observe => "allowed and told as refused",
            Answer::Ask => "asked about",
            Answer::Deny => "denied",
            Answer::Inspect => "looked at request by request",
        })?;
        if let Some(unread) = self.unread {
            write!(f, ", {unread} passes unread")?;
        }
        for (what, list) in [
            ("credentials", &self.credentials),
            ("limits", &self.limits),
            ("secrets", &self.leaks),
            ("private addresses", &self.private),
        ] {
            if !list.is_empty() {
                write!(f, ", {what}: {}", list.join(", "))?;
            }
        }
        match &self.grantable {
            Some(how) => write!(f, ", to be had {how}"),
            None => Ok(()),
        }
    }
}
