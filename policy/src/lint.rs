//! Rules that take no part in any answer: exact over all requests there are, so what is said here is certain.
//!
//! Asked for by whoever checks a policy, not at each compilation: the gateway compiles anew for every run and every change, and
//! must do so in milliseconds; and windows of time need an instant, which compiling does not have.
#[cfg(test)]
mod tests;

use crate::document::Effect;
use crate::fit::Fit;
use crate::space::{Candidate, Hosts, Judge, Namer, Notes, Point, Walk};
use crate::{Code, Decision, Moment, Overlay, Policy, Problem, Remedy};
use std::collections::BTreeSet;

/// Rules are looked at only up to this many host entries in all.
const ENTRY_LIMIT: usize = 20_000;
/// Most rules that are weighed in all; beyond, nothing is said of the rules that are left.
const BUDGET: u64 = 20_000_000;

impl Policy {
    /// Warnings of rules that can never match, never decide, or repeat what others say. Windows of time are looked at over the
    /// year from `from`. Nothing is said of what is too large to be looked at whole.
    pub fn lints(&self, from: jiff::Timestamp) -> Vec<Problem> {
        if self.rules.iter().map(|rule| rule.hosts.len()).sum::<usize>() > ENTRY_LIMIT {
            return Vec::new();
        }
        let mut watch = Watch::new(self);
        watch.all(from);
        watch.problems()
    }
}

/// What came of one rule so far.
#[derive(Debug, Clone, Default)]
struct Role {
    named: bool,
    /// Some of its hosts could not be looked at.
    unknown: bool,
    matched: bool,
    /// An answer rests on it, or may.
    needed: bool,
    /// Rules that refuse what it would let pass or ask about.
    refused_by: BTreeSet<String>,
    /// It alone says what it says of some request.
    alone: bool,
    /// Rules that do the same wherever it matches; `None` before its first request.
    same: Option<BTreeSet<usize>>,
}

/// Looks on while requests are decided.
struct Watch<'p> {
    policy: &'p Policy,
    roles: Vec<Role>,
}

impl<'p> Watch<'p> {
    fn new(policy: &'p Policy) -> Self {
        Self {
            policy,
            roles: vec![Role::default(); policy.rules.len()],
        }
    }

    fn all(&mut self, from: jiff::Timestamp) {
        let policy = self.policy;
        let mut budget = BUDGET;
        for group in &Hosts::new(&[policy]).groups {
            let numbers = group.named_by.iter().filter_map(|namer| match namer {
                Namer::Rule(_, number) => Some(*number),
                _ => None,
            });
            let candidates: Vec<Candidate<'_>> = numbers
                .filter_map(|number| {
                    let rule = policy.rules.get(number)?;
                    Some(Candidate {
                        side: 0,
                        number,
                        rule,
                    })
                })
                .collect();
            let walked = Walk {
                judge: self,
                from,
                budget: &mut budget,
            }
            .host(&group.witness, &candidates);
            for candidate in &candidates {
                if let Some(role) = self.roles.get_mut(candidate.number) {
                    role.named = true;
                    role.unknown |= walked.is_err();
                }
            }
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (number, (rule, role)) in self.policy.rules.iter().zip(&self.roles).enumerate() {
            // Nobody can mend a shipped file; and what checking says already is not said again.
            let said = |known: &Problem| {
                matches!(known.code, Code::ShadowedRule | Code::DuplicateRule)
                    && (known.file.as_str(), known.line, known.column)
                        == (&*rule.at.file, rule.at.line, rule.at.column)
            };
            let is_shipped = rule.at.file.starts_with("preset:");
            if !role.named || role.unknown || is_shipped || self.policy.warnings().iter().any(said) {
                continue;
            }
            problems.extend(self.problem(number, role));
        }
        problems
    }

    fn problem(&self, number: usize, role: &Role) -> Option<Problem> {
        let rule = self.policy.rules.get(number)?;
        if !role.matched {
            let problem = rule.at.warning(format!("rule `{}` can never match", rule.id));
            return Some(problem.code(Code::UnreachableRule).hint(
                "no request has its host, port, protocol, facts and time together: see what contradicts",
            ));
        }
        if !role.needed && rule.effect != Effect::Deny {
            let others: Vec<String> = role.refused_by.iter().map(|id| self.named(id)).collect();
            let message = format!(
                "rule `{}` never decides: {} refuse all that it names",
                rule.id,
                crate::space::few(&others)
            );
            let message = match others.len() {
                1 => message.replace(" refuse all", " refuses all"),
                _ => message,
            };
            return Some(rule.at.warning(message).code(Code::ShadowedRule));
        }
        if role.alone || self.says_more(number) {
            return None;
        }
        let other = role
            .same
            .as_ref()?
            .iter()
            .find(|other| self.may_stand_for(**other, number))?;
        let other = self.policy.rules.get(*other)?;
        let problem = rule.at.warning(format!(
            "rule `{}` changes nothing: rule `{}` ({}) says all of it already",
            rule.id, other.id, other.at
        ));
        Some(problem.code(Code::DuplicateRule).hint("remove one of them"))
    }

    fn named(&self, id: &str) -> String {
        match id {
            "default" => "what no rule names".to_owned(),
            _ => format!("rule `{id}`"),
        }
    }

    /// Whether a rule says more than its effect, so that removing it would change what goes with an answer.
    fn says_more(&self, number: usize) -> bool {
        self.policy.rules.get(number).is_none_or(|rule| {
            !rule.uses.is_empty()
                || !rule.private.is_empty()
                || !rule.widen.is_empty()
                || rule.limits.is_some()
                || !rule.leaks.is_silent()
                || rule.terms.is_some()
                || rule.hint.is_some()
                || rule.observe
        })
    }

    /// Of two rules that say the same the later one is the one too many.
    fn may_stand_for(&self, other: usize, number: usize) -> bool {
        let mutual = self
            .roles
            .get(other)
            .and_then(|role| role.same.as_ref())
            .is_some_and(|same| same.contains(&number));
        other < number || !mutual || self.says_more(other)
    }
}

impl Judge for Watch<'_> {
    type Label = ();

    fn skips(&mut self, candidates: &[Candidate<'_>]) -> bool {
        candidates.is_empty()
    }

    fn judge(&mut self, point: &Point, candidates: &[Candidate<'_>]) -> Option<((), Notes)> {
        if point.request.moment == Moment::Connect {
            return None;
        }
        let decision = self
            .policy
            .decide(&point.request, &point.who, &Overlay::default(), point.at);
        let fits: Vec<(&Candidate<'_>, Fit)> = candidates
            .iter()
            .map(|candidate| {
                (
                    candidate,
                    candidate.rule.fit(&point.request, &point.who, point.at),
                )
            })
            .filter(|(_, fit)| !matches!(fit, Fit::Miss(_)))
            .collect();
        for (candidate, fit) in &fits {
            let same: BTreeSet<usize> = fits
                .iter()
                .filter(|(other, own)| {
                    other.number != candidate.number
                        && other.rule.effect == candidate.rule.effect
                        && other.rule.layer == candidate.rule.layer
                        && own == fit
                })
                .map(|(other, _)| other.number)
                .collect();
            if let Some(role) = self.roles.get_mut(candidate.number) {
                role.note(candidate.rule.effect, *fit, &decision);
                role.alone |= same.is_empty();
                role.same = Some(match role.same.take() {
                    Some(known) => known.intersection(&same).copied().collect(),
                    None => same,
                });
            }
        }
        None
    }
}

impl Role {
    fn note(&mut self, effect: Effect, fit: Fit, decision: &Decision) {
        self.matched = true;
        match (effect, decision) {
            // Where a grant may lift the refusal, this rule may matter yet.
            (Effect::Allow | Effect::Ask, Decision::Deny(refusal))
                if matches!(fit, Fit::Full | Fit::Later) && refusal.remedy == Remedy::None =>
            {
                self.refused_by.insert(refusal.reason.rule.clone());
            }
            _ => self.needed = true,
        }
    }
}
