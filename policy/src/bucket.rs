//! The rules that name one host: those that look at paths are found by path where they are many.
use crate::document::{Effect, TermsPart};
use crate::during::During;
use crate::path_index::PathIndex;
use crate::rule::Rule;
use crate::{Layer, Moment, Protocol};
use ipnet::IpNet;
use std::collections::HashSet;

/// So many rules with paths are found by path; fewer are quicker to walk.
const INDEXED_FROM: usize = if cfg!(test) { 2 } else { 16 };

/// A list of rules.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// All, in the policy's order.
    rules: Box<[u32]>,
    by_path: Option<Box<ByPath>>,
}

/// The same rules, where many look at paths.
#[derive(Debug)]
struct ByPath {
    /// Those that are always weighed.
    others: Box<[u32]>,
    /// Those that an HTTP request concerns only where one of their paths matches.
    fine: Box<[u32]>,
    /// Of those, the first of each kind: before a path is known, all of a kind say the same.
    kinds: Box<[u32]>,
    /// Of those, the first of each layer that allows: the one that a refusal names as near.
    near: Box<[u32]>,
    paths: PathIndex,
}

impl Bucket {
    /// `list` is in the policy's order.
    pub(crate) fn new(list: &[u32], rules: &[Rule]) -> Self {
        let rule = |number: &u32| rules.get(usize::try_from(*number).ok()?);
        let (fine, others): (Vec<u32>, Vec<u32>) = list
            .iter()
            .partition(|number| rule(number).is_some_and(is_found_by_path));
        let by_path = (fine.len() >= INDEXED_FROM).then(|| {
            let mut paths = PathIndex::default();
            let mut kinds = (HashSet::new(), Vec::new());
            let mut near = (HashSet::new(), Vec::new());
            for number in &fine {
                let Some(rule) = rule(number) else { continue };
                for pattern in &rule.paths {
                    paths.add(pattern, *number);
                }
                if kinds.0.insert(Kind::of(rule)) {
                    kinds.1.push(*number);
                }
                if rule.effect == Effect::Allow && near.0.insert(rule.layer) {
                    near.1.push(*number);
                }
            }
            Box::new(ByPath {
                others: others.into(),
                fine: fine.into(),
                kinds: kinds.1.into(),
                near: near.1.into(),
                paths,
            })
        });
        Self {
            rules: list.into(),
            by_path,
        }
    }

    /// All of them.
    pub(crate) fn rules(&self) -> &[u32] {
        &self.rules
    }

    /// Those that may have something to say at this moment; see `HostIndex::each`.
    pub(crate) fn each(&self, moment: &Moment, each_counts: bool, visit: &mut impl FnMut(u32)) {
        let Some(by_path) = &self.by_path else {
            return self.rules.iter().copied().for_each(visit);
        };
        by_path.others.iter().copied().for_each(&mut *visit);
        match moment {
            Moment::Http(http) if http.path.ambiguity().is_none() => {
                by_path.near.iter().copied().for_each(&mut *visit);
                by_path.paths.each(&http.path, visit);
            }
            Moment::Http(_) => by_path.fine.iter().copied().for_each(visit),
            _ if each_counts => by_path.fine.iter().copied().for_each(visit),
            _ => by_path.kinds.iter().copied().for_each(visit),
        }
    }
}

/// Whether a request with a path that no pattern of the rule matches is none of its business.
fn is_found_by_path(rule: &Rule) -> bool {
    !rule.paths.is_empty() && matches!(rule.protocol, None | Some(Protocol::Http))
}

/// All that decides what a rule with paths says before a path is known.
#[derive(PartialEq, Eq, Hash)]
struct Kind<'r> {
    effect: Effect,
    layer: Layer,
    ports: &'r [(u16, u16)],
    protocol: Option<Protocol>,
    private: &'r [IpNet],
    who: &'r [(String, Vec<String>)],
    during: Option<String>,
    observe: bool,
    widen: &'r [Layer],
    by_rule: Option<bool>,
}

impl<'r> Kind<'r> {
    fn of(rule: &'r Rule) -> Self {
        Self {
            effect: rule.effect,
            layer: rule.layer,
            ports: &rule.ports,
            protocol: rule.protocol,
            private: &rule.private,
            who: &rule.who,
            during: rule.during.as_ref().map(During::to_string),
            observe: rule.observe,
            widen: &rule.widen,
            by_rule: rule.terms.as_ref().map(|TermsPart { by_rule, .. }| *by_rule),
        }
    }
}
