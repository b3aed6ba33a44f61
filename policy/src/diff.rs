//! What a change of policy changes, in terms of traffic: exact over all requests there are, not a comparison of texts.
mod compare;
#[cfg(test)]
mod git_tests;
mod outcome;
mod report;
#[cfg(test)]
mod tests;

pub use outcome::{Answer, Outcome};

use crate::space::{Axis, Extent, Hosts, TooMany, Walk};
use crate::{Policy, Request, Who};
use compare::{Comparison, Pair};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most rules that are weighed for one group of hosts.
const GROUP_BUDGET: u64 = 20_000_000;
/// Most rules that are weighed in all.
const WHOLE_BUDGET: u64 = 200_000_000;

/// The difference between two policies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Everything that differs, each request in one entry only.
    pub changes: Vec<Change>,
    /// What could not be compared, since its rules have too many combinations: nothing is known of it.
    pub unknown: Vec<Extent>,
    /// The year in which windows of time were compared begins here.
    pub from: jiff::Timestamp,
}

/// What changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// What was not sent now is.
    NewlyAllowed,
    /// What was sent, or could be after a person's yes, no longer is.
    NewlyDenied,
    /// What was sent or denied now needs a person's yes.
    NewlyAsked,
    /// What needed a person's yes is now sent.
    NoLongerAsked,
    /// The answer is the same; what goes with it is not.
    Changed,
}

/// Some requests of which the same has changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What changes.
    pub kind: ChangeKind,
    /// To which hosts.
    pub hosts: Extent,
    /// For which requests to them; an axis that is not named makes no difference.
    pub requests: BTreeMap<Axis, Extent>,
    /// Under the first policy.
    pub before: Outcome,
    /// Ids and places of the rules that decide there, `default` where none does.
    pub before_by: Vec<String>,
    /// Under the second policy.
    pub after: Outcome,
    /// Likewise.
    pub after_by: Vec<String>,
    /// One of these requests, as people write it.
    pub example: String,
    /// That request.
    #[serde(skip)]
    pub witness: (Request, Who, jiff::Timestamp),
}

impl Policy {
    /// What changes when `new` takes the place of this policy. Windows of time are compared over the year from `from`.
    pub fn diff(&self, new: &Self, from: jiff::Timestamp) -> Diff {
        let sides = [self, new];
        let hosts = Hosts::new(&sides);
        let mut comparison = Comparison::new(sides);
        let mut gathered = Gathered::default();
        let mut left = WHOLE_BUDGET;
        let mut unknown: Vec<usize> = Vec::new();
        for group in &hosts.groups {
            let candidates = comparison.turn_to(group);
            let mut budget = GROUP_BUDGET.min(left);
            let granted = budget;
            let found = Walk {
                judge: &mut comparison,
                from,
                budget: &mut budget,
            }
            .host(&group.witness, &candidates);
            left -= granted - budget;
            match found {
                Ok(found) => found
                    .into_iter()
                    .for_each(|found| gathered.add(found, &group.classes)),
                Err(TooMany) => unknown.extend(&group.classes),
            }
        }
        let mut changes: Vec<Change> = gathered
            .found
            .into_iter()
            .map(|(found, classes)| change(sides, hosts.describe(&classes), found))
            .collect();
        changes.sort_by_key(|change| change.kind);
        Diff {
            changes,
            unknown: match unknown.is_empty() {
                true => Vec::new(),
                false => vec![hosts.describe(&unknown)],
            },
            from,
        }
    }
}

impl Diff {
    /// Whether no request is treated differently, and that is certain.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.unknown.is_empty()
    }
}

type Found = crate::space::Found<Pair>;

/// What is the same for several groups of hosts, put together.
#[derive(Default)]
struct Gathered {
    found: Vec<(Found, Vec<usize>)>,
    known: HashMap<(Pair, crate::space::Conditions), usize>,
}

impl Gathered {
    fn add(&mut self, found: Found, classes: &[usize]) {
        let next = self.found.len();
        let key = (found.label.clone(), found.conditions.clone());
        let place = *self.known.entry(key).or_insert(next);
        match self.found.get_mut(place) {
            Some((first, all)) => {
                first.notes.extend(found.notes);
                all.extend(classes);
            }
            None => self.found.push((found, classes.to_vec())),
        }
    }
}

fn change(sides: [&Policy; 2], hosts: Extent, found: Found) -> Change {
    let (before, after) = found.label;
    let by = |side: usize| -> Vec<String> {
        let ids: BTreeSet<&str> = found
            .notes
            .iter()
            .filter(|(own, _)| *own == side)
            .map(|(_, id)| id.as_str())
            .filter(|id| !id.is_empty())
            .collect();
        ids.into_iter().map(|id| place(sides[side], id)).collect()
    };
    Change {
        kind: kind(before.answer, after.answer),
        hosts,
        before_by: by(0),
        after_by: by(1),
        example: report::example(&found.point, &found.conditions),
        requests: found.conditions,
        before,
        after,
        witness: (found.point.request, found.point.who, found.point.at),
    }
}

/// A rule with its place in the files.
fn place(policy: &Policy, id: &str) -> String {
    match policy.rules.iter().find(|rule| rule.id == id) {
        Some(rule) => format!("{id} ({})", rule.at),
        None => id.to_owned(),
    }
}

fn kind(before: Answer, after: Answer) -> ChangeKind {
    let passes = |answer: Answer| matches!(answer, Answer::Allow | Answer::Observe | Answer::Inspect);
    match (before, after) {
        (before, after) if passes(before) && passes(after) => ChangeKind::Changed,
        (before, after) if before == after => ChangeKind::Changed,
        (_, Answer::Deny) => ChangeKind::NewlyDenied,
        (_, Answer::Ask) => ChangeKind::NewlyAsked,
        (Answer::Ask, _) => ChangeKind::NoLongerAsked,
        _ => ChangeKind::NewlyAllowed,
    }
}
