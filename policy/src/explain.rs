//! The whole story of one decision: every rule, what it made of the request, and what the agent would be told.
mod another;
mod changes;

use crate::document::Effect;
use crate::rule::Fit;
use crate::weighing::{Question, granted};
use crate::wording;
use crate::{Decision, Layer, Moment, Overlay, Policy, Reason, Refusal, Remedy, Request, Who};
pub use changes::Change;
use serde::Serialize;
use std::fmt;

/// A decision with everything that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The request in the form that was decided, which is the form that would be sent.
    pub request: String,
    /// What is odd about it: a special address, a path that can be read in more than one way.
    pub notes: Vec<String>,
    /// The answer when only host and port are known; absent where that is all that was asked.
    pub at_connect: Option<Verdict>,
    /// The answer.
    pub verdict: Verdict,
    /// Every rule, in the policy's order.
    pub rules: Vec<RuleNote>,
    /// What would have changed the answer, the least first: another request, or the policy without some rule.
    pub changes: Vec<Change>,
    /// What the agent is told, where it is refused.
    pub told: Option<String>,
    /// Hash of the policy.
    pub policy_hash: String,
}

/// An answer, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// `allow`, `inspect`, `ask` or `deny`.
    pub decision: String,
    /// What decided; absent for `inspect`.
    pub reason: Option<Reason>,
    /// What the agent may do after a refusal.
    pub remedy: Option<Remedy>,
    /// The rule's hint.
    pub hint: Option<String>,
    /// Credentials that may be put in.
    pub credentials: Vec<String>,
    /// Credentials that may be put in once they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// What becomes of secrets in the request, where that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaks: Option<String>,
    /// Grants that it rests on.
    pub grants: Vec<String>,
    /// What would have refused, were it not in `mode: observe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<Reason>,
}

/// What one rule made of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleNote {
    /// Id.
    pub rule: String,
    /// The layer that it stands in.
    pub layer: Layer,
    /// `allow`, `deny` or `ask`.
    pub effect: String,
    /// `file:line:column`.
    pub at: String,
    /// `yes`, `later` (once more is known) or `no`.
    pub matches: String,
    /// Why.
    pub why: String,
    /// Whether it names the host at all.
    pub names_host: bool,
    /// Whether it is the one that decided.
    pub decided: bool,
}

impl Policy {
    /// Decides, and tells why.
    pub fn explain(
        &self,
        request: &Request,
        who: &Who,
        overlay: &Overlay,
        now: jiff::Timestamp,
    ) -> Explanation {
        let question = Question {
            request,
            who,
            overlay,
            now,
            without: &[],
        };
        let decision = self.answer(question);
        let told = match &decision {
            Decision::Deny(refusal) | Decision::Ask(refusal) => {
                Some(refusal.told(&request.destination.host.to_string()))
            }
            Decision::Allow(_) | Decision::Inspect => None,
        };
        let verdict = Verdict::of(decision, request);
        let at_connect = (request.moment != Moment::Connect).then(|| {
            let connect = Request {
                destination: request.destination.clone(),
                moment: Moment::Connect,
            };
            Verdict::of(self.decide(&connect, who, overlay, now), &connect)
        });
        let decided = verdict.reason.as_ref().map(|reason| reason.rule.clone());
        let rules = self.rules.iter().map(|rule| {
            let fit = rule.fit(request, who, now);
            let mut why = wording::fit(rule, fit, request, who);
            if rule.effect != Effect::Allow
                && fit == Fit::Full
                && let Some(grant) = granted(rule, question)
            {
                why = format!(
                    "{why}; lifted by grant `{}` of {} until {}",
                    grant.id, grant.by, grant.expires_at
                );
            }
            if rule.observe && !matches!(fit, Fit::Miss(_)) {
                why.push_str("; it is told and not enforced");
            }
            RuleNote {
                rule: rule.id.clone(),
                layer: rule.layer,
                effect: rule.effect.as_str().to_owned(),
                at: rule.at.to_string(),
                matches: match fit {
                    Fit::Miss(_) => "no",
                    Fit::Later => "later",
                    Fit::Full | Fit::Ambiguous(_) | Fit::Unread => "yes",
                }
                .to_owned(),
                why,
                names_host: fit != Fit::Miss(crate::rule::Miss::Host),
                decided: decided.as_deref() == Some(&rule.id),
            }
        });
        Explanation {
            request: wording::whole(request),
            notes: wording::notes(request),
            at_connect,
            rules: rules.collect(),
            verdict,
            changes: changes::changes(self, question),
            told,
            policy_hash: self.hash.clone(),
        }
    }
}

impl Verdict {
    /// An answer to this request, in words.
    pub fn of(decision: Decision, request: &Request) -> Self {
        let mut verdict = Self {
            decision: "inspect".to_owned(),
            reason: None,
            remedy: None,
            hint: None,
            credentials: Vec::new(),
            withheld: Vec::new(),
            leaks: None,
            grants: Vec::new(),
            observed: None,
        };
        match decision {
            Decision::Inspect => {}
            Decision::Allow(permit) => {
                verdict.decision = "allow".to_owned();
                verdict.credentials = permit.credentials().into_iter().map(str::to_owned).collect();
                verdict.withheld = permit.withheld().into_iter().map(str::to_owned).collect();
                let leaks = permit.leaks();
                verdict.leaks = (!leaks.is_silent()).then(|| leaks.to_string());
                verdict.grants = permit.grants().to_vec();
                verdict.reason = Some(permit.reason(request));
                verdict.observed = permit.observed().map(|refusal| refusal.reason.clone());
            }
            Decision::Ask(refusal) => verdict.refuse("ask", refusal),
            Decision::Deny(refusal) => verdict.refuse("deny", refusal),
        }
        verdict
    }
}

impl Verdict {
    fn refuse(&mut self, decision: &str, refusal: Refusal) {
        self.decision = decision.to_owned();
        self.reason = Some(refusal.reason);
        self.remedy = Some(refusal.remedy);
        self.hint = refusal.hint;
    }

    /// What follows the decision, a line each.
    fn details(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.reason.iter().map(|reason| reason.text.clone()).collect();
        lines.extend(
            self.observed
                .iter()
                .map(|reason| format!("observed only: {}", reason.text)),
        );
        if !self.credentials.is_empty() {
            lines.push(format!("credentials: {}", self.credentials.join(", ")));
        }
        if !self.withheld.is_empty() {
            lines.push(format!(
                "credentials, once asked for: {}",
                self.withheld.join(", ")
            ));
        }
        lines.extend(self.leaks.iter().map(|leaks| format!("secrets: {leaks}")));
        lines.extend(match &self.remedy {
            Some(Remedy::RequestAccess) => Some("the agent may ask, and gets it at once".to_owned()),
            Some(Remedy::AskPerson) => Some("the agent may ask, and a person decides".to_owned()),
            Some(Remedy::None) => Some("asking does not help".to_owned()),
            None => None,
        });
        lines.extend(self.hint.iter().map(|hint| format!("hint: {hint}")));
        lines
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.request)?;
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        if let Some(connect) = &self.at_connect {
            writeln!(f, "at connect: {}", connect.decision)?;
        }
        writeln!(f, "decision: {}", self.verdict.decision)?;
        for line in self.verdict.details() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "rules:")?;
        let layered = self
            .rules
            .windows(2)
            .any(|pair| pair.first().map(|note| note.layer) != pair.last().map(|note| note.layer));
        for note in self.rules.iter().filter(|note| note.names_host) {
            let mark = if note.decided { "*" } else { " " };
            let layer = match layered {
                true => format!(", {}", note.layer),
                false => String::new(),
            };
            writeln!(
                f,
                "{mark} {} ({}{layer}, {}): {}: {}",
                note.rule, note.effect, note.at, note.matches, note.why
            )?;
        }
        let others = self.rules.iter().filter(|note| !note.names_host).count();
        if others > 0 {
            writeln!(f, "  {others} more name other hosts")?;
        }
        if !self.changes.is_empty() {
            writeln!(f, "what would have changed it:")?;
        }
        for Change { what, decision, rule } in &self.changes {
            match rule {
                Some(rule) => writeln!(f, "  {what}: {decision}, by `{rule}`")?,
                None => writeln!(f, "  {what}: {decision}")?,
            }
        }
        if let Some(told) = &self.told {
            writeln!(f, "the agent is told:\n  {told}")?;
        }
        write!(f, "policy: {}", self.policy_hash)
    }
}
