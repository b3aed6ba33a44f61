//! What would have changed an answer: another request, or the policy without some of its rules. Each is tried, not guessed.
use super::another::another_request;
use crate::document::Effect;
use crate::rule::{Fit, Miss, Rule};
use crate::weighing::Question;
use crate::{Decision, Policy, Who};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// Most changes that are told.
const MOST: usize = 12;
/// Most things that one change may alter at once, and most rules that it may leave out.
const DEEPEST: usize = 6;
/// How far ahead a rule's hours are looked for: a week has every window.
const WEEK: SignedDuration = SignedDuration::from_hours(8 * 24);

/// Something else that was asked, or another policy, with the answer that it would have had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What would be different, for example `` with GET `` or `` without rule `uploads` ``.
    pub what: String,
    /// `allow`, `inspect`, `ask` or `deny`.
    pub decision: String,
    /// The rule that would decide; absent for `inspect`.
    pub rule: Option<String>,
}

/// An answer as far as it matters here.
#[derive(Clone, PartialEq, Eq)]
struct Answer {
    decision: &'static str,
    rule: Option<String>,
}

/// What would have changed this answer, the least first.
pub(super) fn changes(policy: &Policy, question: Question<'_>) -> Vec<Change> {
    let now = answer(policy, question);
    let mut found: Vec<(usize, Change)> = Vec::new();
    let mut add = |depth: usize, what: String, then: Answer| {
        if then.decision != now.decision && !found.iter().any(|(_, change)| change.what == what) {
            let change = Change {
                what,
                decision: then.decision.to_owned(),
                rule: then.rule,
            };
            found.push((depth, change));
        }
    };
    if rank(&now) < ALLOWED {
        for (depth, what, then) in
            candidates(policy, question).filter_map(|rule| nearer(policy, rule, question))
        {
            if rank(&then) > rank(&now) {
                add(depth, what, then);
            }
        }
        if let Some((depth, what, then)) = without_refusals(policy, question, &now) {
            add(depth, what, then);
        }
    } else {
        for (depth, what, then) in without_permissions(policy, question) {
            add(depth, what, then);
        }
    }
    found.sort_by_key(|(depth, _)| *depth);
    found.into_iter().take(MOST).map(|(_, change)| change).collect()
}

/// Rank of an answer that lets pass.
const ALLOWED: u8 = 3;

fn rank(answer: &Answer) -> u8 {
    match answer.decision {
        "allow" => ALLOWED,
        "inspect" => 2,
        "ask" => 1,
        _ => 0,
    }
}

fn answer(policy: &Policy, question: Question<'_>) -> Answer {
    let (decision, rule) = match policy.answer(question) {
        Decision::Allow(permit) => ("allow", Some(permit.rule().to_owned())),
        Decision::Inspect => ("inspect", None),
        Decision::Ask(refusal) => ("ask", Some(refusal.reason.rule)),
        Decision::Deny(refusal) => ("deny", Some(refusal.reason.rule)),
    };
    Answer { decision, rule }
}

/// The rules that let pass and name the host.
fn candidates<'p>(policy: &'p Policy, question: Question<'p>) -> impl Iterator<Item = &'p Rule> {
    let host = &question.request.destination.host;
    policy
        .rules
        .iter()
        .filter(move |rule| rule.effect != Effect::Deny && rule.hosts.iter().any(|own| own.matches(host)))
}

/// The question brought within one rule, step by step, and its answer then.
fn nearer(policy: &Policy, rule: &Rule, question: Question<'_>) -> Option<(usize, String, Answer)> {
    let (mut request, mut who, mut now) = (question.request.clone(), question.who.clone(), question.now);
    let mut steps = Vec::new();
    while let Fit::Miss(miss) = rule.fit(&request, &who, now) {
        if steps.len() >= DEEPEST {
            return None;
        }
        let step = match miss {
            Miss::Time => within_hours(rule, &mut now),
            Miss::Who => for_another(rule, &mut who),
            other => another_request(rule, other, &mut request),
        };
        steps.push(step?);
    }
    if steps.is_empty() {
        return None;
    }
    let asked = Question {
        request: &request,
        who: &who,
        now,
        ..question
    };
    Some((steps.len(), steps.join(" and "), answer(policy, asked)))
}

fn within_hours(rule: &Rule, now: &mut Timestamp) -> Option<String> {
    let during = rule.during.as_ref()?;
    let step = SignedDuration::from_mins(1);
    let last = now.checked_add(WEEK).ok()?;
    let mut at = *now;
    while !during.holds(at) {
        at = at.checked_add(step).ok().filter(|at| *at < last)?;
    }
    *now = at;
    Some(format!("within {during}"))
}

fn for_another(rule: &Rule, who: &mut Who) -> Option<String> {
    let (fact, values) = rule.unmet_fact(who)?;
    let (fact, value) = (fact.to_owned(), values.first()?.clone());
    who.set(&fact, value.replace('*', "x"))
        .then(|| format!("for {fact} `{value}`"))
}

/// The policy without the rules that refuse this, as many as it takes.
fn without_refusals(
    policy: &Policy,
    question: Question<'_>,
    now: &Answer,
) -> Option<(usize, String, Answer)> {
    let mut without: Vec<u32> = Vec::new();
    let mut then = now.clone();
    while rank(&then) <= rank(now) {
        let more = numbers_of(policy, then.rule.as_deref()?);
        if without.len() >= DEEPEST || more.is_empty() || more.iter().any(|number| without.contains(number)) {
            return None;
        }
        without.extend(more);
        let asked = Question {
            without: &without,
            ..question
        };
        then = answer(policy, asked);
    }
    Some((without.len(), leaving_out(policy, &without), then))
}

/// The policy without the rules that allow this: each alone, and all of them where none alone matters.
fn without_permissions(policy: &Policy, question: Question<'_>) -> Vec<(usize, String, Answer)> {
    let fits = |rule: &&Rule| {
        rule.effect == Effect::Allow && rule.fit(question.request, question.who, question.now) == Fit::Full
    };
    let mut numbers: Vec<u32> = candidates(policy, question)
        .filter(fits)
        .flat_map(|rule| numbers_of(policy, &rule.id))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let then = |without: &[u32]| answer(policy, Question { without, ..question });
    let alone = numbers.iter().map(|number| {
        let without = [*number];
        (1, leaving_out(policy, &without), then(&without))
    });
    let all = (numbers.len() > 1).then(|| (numbers.len(), leaving_out(policy, &numbers), then(&numbers)));
    let mut found: Vec<_> = alone.collect();
    if found.iter().all(|(_, _, then)| then.decision == "allow") {
        found.extend(all);
    }
    found
}

/// More than one where layers have a preset in common.
fn numbers_of(policy: &Policy, id: &str) -> Vec<u32> {
    (0u32..)
        .zip(policy.rules.iter())
        .filter(|(_, rule)| rule.id == id)
        .map(|(number, _)| number)
        .collect()
}

fn leaving_out(policy: &Policy, without: &[u32]) -> String {
    let mut names: Vec<String> = Vec::new();
    for rule in without.iter().filter_map(|number| policy.rule(*number)) {
        let name = format!("`{}`", rule.id);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let word = if names.len() == 1 { "rule" } else { "rules" };
    format!("without {word} {}", names.join(" and "))
}
