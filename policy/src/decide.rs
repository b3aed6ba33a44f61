//! Deciding: every rule that names the host is weighed; deny beats ask beats allow.
use crate::document::{Effect, TermsPart};
use crate::policy::Policy;
use crate::rule::{Fit, Miss, Rule};
use crate::wording;
use crate::{Decision, Grant, Moment, Overlay, Permit, Protocol, Reason, Refusal, Remedy, Request, Who};

/// What is asked, in one piece.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) request: &'a Request,
    pub(crate) who: &'a Who,
    pub(crate) overlay: &'a Overlay,
    pub(crate) now: jiff::Timestamp,
}

/// The rules that have something to say, each group in the policy's order.
#[derive(Default)]
pub(crate) struct Weighed<'p> {
    denies: Vec<(&'p Rule, Fit)>,
    asks: Vec<&'p Rule>,
    allows: Vec<&'p Rule>,
    lifted: Vec<(&'p Rule, &'p Grant)>,
    /// Something may allow once more is known.
    hope: bool,
    /// Something must be seen before anything may pass.
    look: bool,
    /// The first rule that allows something on this host, and why not this.
    near: Option<(&'p Rule, Miss)>,
}

impl Policy {
    /// Decides. Total: every request has an answer, and what no rule names gets the default.
    pub fn decide(&self, request: &Request, who: &Who, overlay: &Overlay, now: jiff::Timestamp) -> Decision {
        let question = Question {
            request,
            who,
            overlay,
            now,
        };
        let weighed = self.weigh(question);
        self.conclude(&weighed, question)
    }

    pub(crate) fn weigh<'p>(&'p self, question: Question<'p>) -> Weighed<'p> {
        let mut weighed = Weighed::default();
        for number in self.index.candidates(&question.request.destination.host) {
            if let Some(rule) = self.rules.get(number) {
                weighed.add(rule, question);
            }
        }
        weighed
    }

    fn conclude(&self, weighed: &Weighed<'_>, question: Question<'_>) -> Decision {
        let request = question.request;
        if let Some((rule, fit)) = weighed.hardest() {
            return Decision::Deny(refusal(rule, fit, request));
        }
        if let Some(rule) = weighed.asks.first() {
            return Decision::Ask(refusal(rule, Fit::Full, request));
        }
        let passes = !weighed.allows.is_empty() || !weighed.lifted.is_empty();
        let default_allows = self.default_allow && !wording::is_special(&request.destination.host);
        if request.moment == Moment::Connect {
            if passes && !weighed.look {
                return Decision::Allow(self.permit(weighed, question));
            }
            if passes || weighed.hope || default_allows {
                return Decision::Inspect;
            }
        } else if passes {
            return Decision::Allow(self.permit(weighed, question));
        } else if default_allows && matches!(request.moment, Moment::Http(_)) {
            return Decision::Allow(default_permit(request));
        }
        Decision::Deny(Refusal {
            reason: Reason {
                rule: "default".into(),
                text: wording::unnamed(request, weighed.near),
            },
            remedy: Remedy::None,
            hint: None,
        })
    }

    fn permit(&self, weighed: &Weighed<'_>, question: Question<'_>) -> Permit {
        let request = question.request;
        let protocol = match &request.moment {
            Moment::Http(_) => Protocol::Http,
            Moment::Connect
                if weighed
                    .allows
                    .iter()
                    .all(|rule| rule.protocol == Some(Protocol::Tls))
                    && !weighed.allows.is_empty() =>
            {
                Protocol::Tls
            }
            _ => Protocol::Tcp,
        };
        let rules = || {
            weighed
                .allows
                .iter()
                .copied()
                .chain(weighed.lifted.iter().map(|(rule, _)| *rule))
        };
        let carries = matches!(&request.moment, Moment::Http(http) if http.tls);
        let mut credentials: Vec<String> = Vec::new();
        for number in rules().filter(|_| carries).flat_map(|rule| &rule.uses) {
            if let Some(credential) = self.credentials.get(*number)
                && credential.admits(&request.destination)
                && !credentials.contains(&credential.name)
            {
                credentials.push(credential.name.clone());
            }
        }
        let reason = match (weighed.lifted.first(), weighed.allows.first()) {
            (Some((rule, grant)), _) => Reason {
                rule: rule.id.clone(),
                text: wording::lifted(rule, grant, request),
            },
            (None, Some(rule)) => Reason {
                rule: rule.id.clone(),
                text: wording::allowed(rule, request),
            },
            (None, None) => default_reason(request),
        };
        Permit {
            destination: request.destination.clone(),
            reason,
            protocol,
            credentials,
            grants: weighed.lifted.iter().map(|(_, grant)| grant.id.clone()).collect(),
            private: rules().flat_map(|rule| rule.private.iter().copied()).collect(),
            observed: None,
            limits: Vec::new(),
        }
    }
}

fn default_reason(request: &Request) -> Reason {
    Reason {
        rule: "default".into(),
        text: wording::by_default(request),
    }
}

fn default_permit(request: &Request) -> Permit {
    Permit {
        destination: request.destination.clone(),
        reason: default_reason(request),
        protocol: Protocol::Http,
        credentials: Vec::new(),
        grants: Vec::new(),
        private: Vec::new(),
        observed: None,
        limits: Vec::new(),
    }
}

fn refusal(rule: &Rule, fit: Fit, request: &Request) -> Refusal {
    Refusal {
        reason: Reason {
            rule: rule.id.clone(),
            text: wording::refused(rule, fit, request),
        },
        remedy: remedy(rule, fit, request),
        hint: rule.hint.clone(),
    }
}

/// Asking helps only where a grant would lift this very refusal.
fn remedy(rule: &Rule, fit: Fit, request: &Request) -> Remedy {
    let liftable =
        fit == Fit::Full && (request.moment != Moment::Opaque || rule.protocol == Some(Protocol::Tcp));
    match rule.terms {
        Some(TermsPart { by_rule: true, .. }) if liftable => Remedy::RequestAccess,
        Some(_) if liftable => Remedy::AskPerson,
        _ => Remedy::None,
    }
}

impl<'p> Weighed<'p> {
    pub(crate) fn add(&mut self, rule: &'p Rule, question: Question<'p>) {
        let fit = rule.fit(question.request, question.who, question.now);
        match (rule.effect, fit) {
            (Effect::Allow, Fit::Full) => self.allows.push(rule),
            (Effect::Allow, Fit::Later) => {
                self.hope = true;
                self.look = true;
            }
            (Effect::Allow, Fit::Miss(miss)) => {
                self.near.get_or_insert((rule, miss));
            }
            (_, Fit::Miss(_)) => {}
            (Effect::Ask, Fit::Later) => {
                self.hope = true;
                self.look = true;
            }
            (_, Fit::Later) => self.look = true,
            // Whether a person is needed can be told more readably once the request is there.
            (Effect::Ask, Fit::Full) if question.request.moment == Moment::Connect => {
                self.hope = true;
                self.look = true;
            }
            _ => self.refuse(rule, fit, question),
        }
        if question.request.moment == Moment::Connect
            && matches!(fit, Fit::Later)
            && rule.effect == Effect::Deny
            && granted(rule, question).is_some()
        {
            self.hope = true;
        }
    }

    /// A rule that refuses, unless a grant lifts it.
    fn refuse(&mut self, rule: &'p Rule, fit: Fit, question: Question<'p>) {
        let grant = (fit == Fit::Full).then(|| granted(rule, question)).flatten();
        match (grant, &question.request.moment) {
            (Some(_), Moment::Connect) => {
                self.hope = true;
                self.look = true;
            }
            (Some(grant), Moment::Opaque) if rule.protocol == Some(Protocol::Tcp) => {
                self.lifted.push((rule, grant))
            }
            (Some(grant), Moment::Http(_)) => self.lifted.push((rule, grant)),
            _ if rule.effect == Effect::Ask && fit == Fit::Full => self.asks.push(rule),
            _ => self.denies.push((rule, fit)),
        }
    }

    /// The refusal that stands longest: lifting an easier one would help nobody.
    fn hardest(&self) -> Option<(&'p Rule, Fit)> {
        let hardness = |(rule, fit): &(&Rule, Fit)| match rule.terms {
            Some(TermsPart { by_rule: true, .. }) if *fit == Fit::Full => 2,
            Some(_) if *fit == Fit::Full => 1,
            _ => 0,
        };
        self.denies.iter().min_by_key(|deny| hardness(deny)).copied()
    }
}

/// The grant that lifts this rule's refusal of this request.
pub(crate) fn granted<'p>(rule: &Rule, question: Question<'p>) -> Option<&'p Grant> {
    let destination = &question.request.destination;
    if let crate::Host::Address(address) = destination.host
        && rule.closed_address(address).is_some()
    {
        return None;
    }
    question
        .overlay
        .grants
        .iter()
        .find(|grant| grant.rule == rule.id && grant.is_live(question.now) && grant.covers(question.request))
}
