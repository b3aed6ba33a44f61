//! Deciding a recorded request again, under another policy: what the record does not tell is never guessed.
use crate::document::Effect;
use crate::recorded::{Outcome, Recorded, Shape};
use crate::rule::Rule;
use crate::{
    Decision, Grant, HttpRequest, Moment, Overlay, Permit, Policy, Protocol, Reason, Refusal, Remedy,
    Request, Who,
};
use std::collections::HashMap;

/// What the other policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This, whatever the record does not tell.
    Told(Told),
    /// It depends on what the record does not tell.
    Untold(String),
}

/// An answer with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) rule: String,
    pub(crate) text: String,
}

/// Decides recorded requests by one policy.
#[derive(Debug)]
pub(crate) struct Again {
    /// Where all facts of the session are known.
    known: Bounds,
    /// Where only its run and user are; none where the policy looks at no other.
    stranger: Option<Bounds>,
}

/// A policy with all that records do not tell set to let pass, and to refuse: what both say holds for whatever it was.
#[derive(Debug)]
struct Bounds {
    widest: Policy,
    /// None where nothing of that kind is looked at.
    narrowest: Option<Policy>,
    /// What is looked at, by rule.
    looks_at: HashMap<String, &'static str>,
    /// Some rule is about git, which is seen by the query in one of its requests.
    git: bool,
}

impl Again {
    pub(crate) fn new(policy: Policy) -> Self {
        let strange = policy.rules.iter().any(|rule| rule.who.iter().any(is_private));
        Self {
            stranger: strange.then(|| Bounds::new(policy.with_rules(policy.rules.to_vec()), false)),
            known: Bounds::new(policy, true),
        }
    }

    /// `who` is absent where the log does not tell whose the session is.
    pub(crate) fn decide(&self, recorded: &Recorded<'_>, who: Option<&Who>) -> Answer {
        match who {
            Some(who) => self.known.answer(recorded, who),
            None => {
                let who = Who {
                    run: recorded.session.to_string(),
                    user: recorded.user.to_string(),
                    ..Who::default()
                };
                self.stranger
                    .as_ref()
                    .unwrap_or(&self.known)
                    .answer(recorded, &who)
            }
        }
    }
}

impl Bounds {
    fn new(policy: Policy, who_known: bool) -> Self {
        let looks_at: HashMap<String, &'static str> = policy
            .rules
            .iter()
            .filter_map(|rule| Some((rule.id.clone(), untold(rule, who_known)?)))
            .collect();
        let bound = |kept: fn(Effect) -> bool| {
            let mut rules = policy.rules.to_vec();
            for rule in &mut rules {
                match untold(rule, who_known) {
                    Some(_) if kept(rule.effect) => settle(rule, who_known),
                    // Named by no host, it never matches.
                    Some(_) => rule.hosts.clear(),
                    None => {}
                }
            }
            policy.with_rules(rules)
        };
        Self {
            narrowest: (!looks_at.is_empty()).then(|| bound(|effect| effect != Effect::Allow)),
            git: policy
                .rules
                .iter()
                .any(|rule| rule.protocol == Some(Protocol::Git)),
            widest: match looks_at.is_empty() {
                true => policy,
                false => bound(|effect| effect == Effect::Allow),
            },
            looks_at,
        }
    }

    fn answer(&self, recorded: &Recorded<'_>, who: &Who) -> Answer {
        let case = Case { recorded, who };
        match &recorded.shape {
            Shape::Http { path: None, .. } => {
                Answer::Untold("the record has only the beginning of the path".to_owned())
            }
            Shape::Http {
                method,
                path: Some(path),
                tls,
            } => {
                let mut moments = Vec::with_capacity(1);
                for tls in tls.map_or(&[true, false][..], |tls| if tls { &[true] } else { &[false] }) {
                    let http = HttpRequest::new(&**method, path.clone(), None, *tls);
                    if self.git && path.as_str().ends_with("/info/refs") {
                        for service in ["git-upload-pack", "git-receive-pack"] {
                            let query = Some(format!("service={service}"));
                            moments.push(Moment::Http(HttpRequest {
                                query,
                                ..http.clone()
                            }));
                        }
                    }
                    moments.push(Moment::Http(http));
                }
                self.all(moments, case)
            }
            Shape::Postgres(login) => self.all(vec![Moment::Postgres(login.clone())], case),
            Shape::Ssh(ssh) => self.all(vec![Moment::Ssh(ssh.clone())], case),
            Shape::Connect => self.connection(case, "the client left before it asked for anything"),
            Shape::Tls => self.connection(case, "what is inside the TLS that was passed unread is not known"),
            // It was refused after its bytes were seen.
            Shape::Stream if recorded.outcome != Outcome::Allowed => self.all(vec![Moment::Opaque], case),
            Shape::Stream => self.connection(
                case,
                "what is inside the stream that was passed unread is not known",
            ),
        }
    }

    /// What is refused or passes by its place alone.
    fn connection(&self, case: Case<'_>, unseen: &str) -> Answer {
        match self.one(Moment::Connect, case) {
            Some(answer) => answer,
            None => Answer::Untold(unseen.to_owned()),
        }
    }

    /// The answer to whichever of these it was.
    fn all(&self, moments: Vec<Moment>, case: Case<'_>) -> Answer {
        let mut answer: Option<Answer> = None;
        for moment in moments {
            let Some(next) = self.one(moment, case) else {
                return Answer::Untold("the policy looks at what is not recorded".to_owned());
            };
            match (&answer, &next) {
                (Some(Answer::Told(first)), Answer::Told(told)) if first.outcome != told.outcome => {
                    return Answer::Untold("neither the query nor TLS is recorded".to_owned());
                }
                (Some(Answer::Told(_)), Answer::Told(_)) => {}
                _ => answer = Some(next),
            }
            if matches!(answer, Some(Answer::Untold(_))) {
                break;
            }
        }
        answer.unwrap_or_else(|| Answer::Untold("nothing is known of it".to_owned()))
    }

    /// None where more would have to be seen.
    fn one(&self, moment: Moment, case: Case<'_>) -> Option<Answer> {
        let request = Request {
            destination: case.recorded.destination.clone(),
            moment,
        };
        let widest = case.decide(&self.widest, &request);
        let Some(narrowest) = &self.narrowest else {
            return case.told(widest, &request);
        };
        let narrowest = case.decide(narrowest, &request);
        let (wide, narrow) = (case.told(widest, &request)?, case.told(narrowest, &request)?);
        let (wide, narrow) = match (wide, narrow) {
            (Answer::Told(wide), Answer::Told(narrow)) => (wide, narrow),
            (untold @ Answer::Untold(_), _) | (_, untold) => return Some(untold),
        };
        if wide.outcome == narrow.outcome {
            // Each names a rule that matches in any case: what allows in the narrow one, what refuses in the wide one.
            let passes = matches!(wide.outcome, Outcome::Allowed);
            return Some(Answer::Told(if passes { narrow } else { wide }));
        }
        let look = [&narrow.rule, &wide.rule]
            .into_iter()
            .find_map(|rule| Some((rule, self.looks_at.get(rule)?)));
        Some(Answer::Untold(match look {
            Some((rule, what)) => format!("rule `{rule}` looks at {what}"),
            None => "rules look at what is not recorded".to_owned(),
        }))
    }
}

/// Whether it opens private addresses to names.
fn opens_addresses(permit: &Permit) -> bool {
    let rule = |number: &u32| permit.rules.get(usize::try_from(*number).ok()?);
    permit
        .telling
        .iter()
        .filter_map(rule)
        .any(|rule| !rule.private.is_empty())
}

/// What a rule looks at that records do not tell.
fn untold(rule: &Rule, who_known: bool) -> Option<&'static str> {
    if !rule.query.is_empty() {
        return Some("the query, which is not recorded");
    }
    if !rule.headers.is_empty() {
        return Some("header fields, which are not recorded");
    }
    if !rule.git.refs.is_empty() || rule.git.force.is_some() {
        return Some("pushed refs, which are not recorded");
    }
    (!who_known && rule.who.iter().any(is_private))
        .then_some("facts of the run, and no record tells whose it was")
}

/// A policy that looks at nothing that records do not tell, so that its rules match at least what they matched.
pub(crate) fn settled(policy: &Policy, who_known: bool) -> Policy {
    let mut rules = policy.rules.to_vec();
    rules.iter_mut().for_each(|rule| settle(rule, who_known));
    policy.with_rules(rules)
}

/// Takes out what records do not tell.
fn settle(rule: &mut Rule, who_known: bool) {
    rule.query.clear();
    rule.headers.clear();
    rule.git.refs.clear();
    rule.git.force = None;
    if !who_known {
        rule.who.retain(|fact| !is_private(fact));
    }
}

/// Run and user stand in every record; the other facts in those of sessions alone.
fn is_private((fact, _): &(String, Vec<String>)) -> bool {
    fact != "run" && fact != "user"
}

#[derive(Clone, Copy)]
struct Case<'a> {
    recorded: &'a Recorded<'a>,
    who: &'a Who,
}

impl Case<'_> {
    /// With as many refusals lifted as were lifted then, first of all that of the rule that was.
    fn decide(self, policy: &Policy, request: &Request) -> Decision {
        let mut overlay = Overlay::default();
        loop {
            let decision = policy.decide(request, self.who, &overlay, self.recorded.at);
            let (Decision::Deny(refusal) | Decision::Ask(refusal)) = &decision else {
                return decision;
            };
            let first = overlay.grants.is_empty() && self.recorded.grants == 1;
            let lifted = overlay.grants.len() < self.recorded.grants
                && refusal.remedy != Remedy::None
                && (!first || refusal.reason.rule == self.recorded.rule)
                && !overlay
                    .grants
                    .iter()
                    .any(|grant| grant.rule == refusal.reason.rule);
            if !lifted {
                return decision;
            }
            overlay.grants.push(self.grant(refusal));
        }
    }

    fn grant(self, refusal: &Refusal) -> Grant {
        Grant {
            credential: None,
            id: "recorded".to_owned(),
            rule: refusal.reason.rule.clone(),
            host: self.recorded.destination.host.to_string(),
            port: self.recorded.destination.port,
            methods: Vec::new(),
            path: None,
            uses: None,
            expires_at: jiff::Timestamp::MAX,
            by: "the recorded grant".to_owned(),
        }
    }

    /// The sentence is made only where it is news.
    fn allowed(self, permit: &Permit, request: &Request) -> Reason {
        match self.recorded.outcome {
            Outcome::Allowed | Outcome::Observed => Reason {
                rule: permit.rule().to_owned(),
                text: String::new(),
            },
            Outcome::Asked | Outcome::Denied => permit.reason(request),
        }
    }

    /// None where more would have to be seen.
    fn told(self, decision: Decision, request: &Request) -> Option<Answer> {
        let (outcome, reason) = match decision {
            Decision::Inspect => return None,
            Decision::Allow(permit) => {
                if self.recorded.stopped && opens_addresses(&permit) {
                    let why =
                        "the address that the name led to is not recorded, and the new policy opens some";
                    return Some(Answer::Untold(why.to_owned()));
                }
                if permit.protocol() == Protocol::Tls && !matches!(self.recorded.shape, Shape::Tls) {
                    return None;
                }
                match permit.observed() {
                    Some(refusal) => (Outcome::Observed, refusal.reason.clone()),
                    None => (Outcome::Allowed, self.allowed(&permit, request)),
                }
            }
            Decision::Ask(refusal) => (Outcome::Asked, refusal.reason),
            Decision::Deny(refusal) => (Outcome::Denied, refusal.reason),
        };
        Some(Answer::Told(Told {
            outcome,
            rule: reason.rule,
            text: reason.text,
        }))
    }
}
