//! Comparing two policies host group by host group.
use super::outcome::{Doors, Outcome, outcome, words};
use crate::rule::Rule;
use crate::space::{Candidate, HostGroup, Judge, Namer, Notes, Point};
use crate::{Credential, Host, Moment, Policy};
use std::collections::HashMap;

/// What becomes of some requests under the one policy and under the other.
pub(super) type Pair = (Outcome, Outcome);

/// Two policies, and what of their rules is the same.
pub(super) struct Comparison<'p> {
    sides: [&'p Policy; 2],
    /// Rules that say the same of a host that both name have the same number.
    meanings: [Vec<usize>; 2],
    /// What no rule names is treated alike.
    same_world: bool,
    /// Of the group at hand: what each candidate means there.
    here: HashMap<(usize, usize), usize>,
    known: HashMap<(usize, Vec<String>), usize>,
    doors: Doors,
}

impl<'p> Comparison<'p> {
    pub(super) fn new(sides: [&'p Policy; 2]) -> Self {
        let mut known: HashMap<String, usize> = HashMap::new();
        let meanings = sides.map(|policy| {
            policy
                .rules
                .iter()
                .map(|rule| {
                    let next = known.len();
                    *known.entry(meaning(rule)).or_insert(next)
                })
                .collect()
        });
        Self {
            sides,
            meanings,
            same_world: format!("{:?}", sides[0].layers) == format!("{:?}", sides[1].layers),
            here: HashMap::new(),
            known: HashMap::new(),
            doors: Doors::new(),
        }
    }

    /// Turns to this group; its rules, those of the first policy first.
    pub(super) fn turn_to(&mut self, group: &HostGroup) -> Vec<Candidate<'p>> {
        let mut candidates = Vec::new();
        self.here.clear();
        for namer in &group.named_by {
            let Namer::Rule(side, number) = *namer else {
                continue;
            };
            let Some(rule) = self.sides.get(side).and_then(|policy| policy.rules.get(number)) else {
                continue;
            };
            let meaning = self.meanings[side].get(number).copied().unwrap_or_default();
            let uses = self.uses(side, rule, &group.witness);
            let next = self.known.len();
            let here = *self.known.entry((meaning, uses)).or_insert(next);
            self.here.insert((side, number), here);
            candidates.push(Candidate { side, number, rule });
        }
        self.doors = doors(&candidates);
        candidates
    }

    /// The credentials that a rule takes to this host.
    fn uses(&self, side: usize, rule: &Rule, host: &Host) -> Vec<String> {
        let destination = crate::Destination {
            host: host.clone(),
            port: 0,
        };
        let credentials = &self.sides[side].credentials;
        let mut uses: Vec<String> = rule
            .uses
            .iter()
            .filter_map(|number| credentials.get(*number))
            .filter(|credential| credential.admits(&destination))
            .map(|credential| self.credential(side, &credential.name))
            .collect();
        uses.sort();
        uses
    }

    /// A credential in words: its name, and more where the two policies do not mean the same by it.
    fn credential(&self, side: usize, name: &str) -> String {
        let find = |side: usize| -> Option<&Credential> {
            self.sides[side].credentials.iter().find(|own| own.name == name)
        };
        let mut text = match (find(side), find(1 - side)) {
            (Some(own), Some(other)) if own.places != other.places || own.from != other.from => {
                format!("{name} (from {:?}, in {:?})", own.from, own.places)
            }
            _ => name.to_owned(),
        };
        if let Some(terms) = find(side).and_then(|own| own.terms.as_ref()) {
            let by = if terms.by_rule {
                "by asking"
            } else {
                "by a person's yes"
            };
            text.push_str(&format!(" (to be had {by}{})", words(terms)));
        }
        text
    }
}

impl Judge for Comparison<'_> {
    type Label = Pair;

    fn skips(&mut self, candidates: &[Candidate<'_>]) -> bool {
        let here = &self.here;
        let meant = |side: usize| {
            candidates
                .iter()
                .filter(move |candidate| candidate.side == side)
                .map(move |candidate| here.get(&(side, candidate.number)))
        };
        self.same_world && meant(0).eq(meant(1))
    }

    fn judge(&mut self, point: &Point, candidates: &[Candidate<'_>]) -> Option<(Pair, Notes)> {
        let of = |side: usize| {
            let own: Vec<Candidate<'_>> = candidates
                .iter()
                .filter(|own| own.side == side)
                .copied()
                .collect();
            let credential = |name: &str| self.credential(side, name);
            outcome(self.sides[side], point, &own, &self.doors, &credential)
        };
        let ((before, first), (after, second)) = (of(0), of(1));
        // At connect it only matters whether anything passes before it was looked at.
        let differ = match point.request.moment {
            Moment::Connect => before.unread != after.unread,
            _ => before != after,
        };
        differ.then(|| ((before, after), Notes::from([(0, first), (1, second)])))
    }
}

/// All that a rule says of a host that it names, as text; not which hosts, nor what it is called or where it stands.
fn meaning(rule: &Rule) -> String {
    let bare = Rule {
        id: String::new(),
        at: crate::diagnostic::Position {
            file: "".into(),
            line: 0,
            column: 0,
        },
        hosts: Vec::new(),
        uses: Vec::new(),
        hint: None,
        ..rule.clone()
    };
    format!("{bare:?}")
}

/// The special ranges that these rules open.
fn doors(candidates: &[Candidate<'_>]) -> Doors {
    let mut nets: Vec<ipnet::IpNet> = candidates
        .iter()
        .flat_map(|candidate| candidate.rule.private.iter().copied())
        .collect();
    nets.sort_unstable();
    nets.dedup();
    crate::space::special_addresses(&nets)
}
