//! Sets of refs that a push may change, as far as rules tell them apart: exact for any number of refs at once.
use super::axis::{Setting, Slot, Split, keep};
use super::globs::TooMany;
use super::paths;
use super::repositories::bare;
use crate::document::Effect;
use crate::path_pattern::{PathPattern, Segment};
use crate::rule::Rule;
use crate::{Protocol, RefUpdate};
use percent_encoding::percent_decode_str;
use std::collections::HashSet;

/// Most sets of refs that are looked at before the question is given up.
const SET_LIMIT: usize = 2_000;

/// What a rule says of refs.
struct Matcher<'r> {
    /// Empty means any.
    refs: &'r [PathPattern],
    force: Option<bool>,
    /// Each ref must be its, or else one is enough.
    all: bool,
}

/// A set of refs, and by number which matchers it fits.
struct Pushed {
    updates: Vec<RefUpdate>,
    fits: Vec<bool>,
}

/// Every kind of push: what it changes is not known yet, or any set of refs.
pub(super) fn pushes(rules: &[&Rule]) -> Result<Split, TooMany> {
    let mut matchers: Vec<Matcher<'_>> = Vec::new();
    let mut numbers: Vec<Option<usize>> = Vec::new();
    for rule in rules {
        let own = of_rule(rule);
        numbers.push(own.map(|own| {
            let known = matchers.iter().position(|known| known.is(&own));
            known.unwrap_or_else(|| {
                matchers.push(own);
                matchers.len() - 1
            })
        }));
    }
    let mut slots = vec![Slot {
        setting: Setting::Pushed(None),
        keeps: keep(rules, |_| true),
        flavour: 1,
    }];
    if matchers.is_empty() {
        return Ok(Split::named(slots, Vec::new()));
    }
    let sets = sets(&matchers)?;
    slots.extend(sets.iter().map(|set| {
        Slot {
            setting: Setting::Pushed(Some(set.updates.clone())),
            keeps: (0_u32..)
                .zip(&numbers)
                .filter(|(_, number)| number.is_none_or(|number| set.fits.get(number) == Some(&true)))
                .map(|(place, _)| place)
                .collect(),
            flavour: 0,
        }
    }));
    let mut names: Vec<(String, Vec<usize>)> = matchers
        .iter()
        .enumerate()
        .map(|(number, matcher)| {
            let inside = sets
                .iter()
                .enumerate()
                .filter(|(_, set)| set.fits.get(number) == Some(&true));
            (matcher.words(), inside.map(|(slot, _)| slot + 1).collect())
        })
        .collect();
    names.push(("not read yet".to_owned(), vec![0]));
    Ok(Split::named(slots, names))
}

fn of_rule<'r>(rule: &'r Rule) -> Option<Matcher<'r>> {
    let looks = rule.protocol == Some(Protocol::Git) && rule.git.looks_at_refs();
    looks.then(|| Matcher {
        refs: &rule.git.refs,
        force: rule.git.force,
        all: rule.effect == Effect::Allow,
    })
}

impl Matcher<'_> {
    fn is(&self, other: &Self) -> bool {
        self.refs == other.refs && self.force == other.force && self.all == other.all
    }

    fn words(&self) -> String {
        let refs: Vec<&str> = self.refs.iter().map(bare).collect();
        let refs = if refs.is_empty() {
            "any".to_owned()
        } else {
            refs.join(" or ")
        };
        let which = if self.all { "only" } else { "at least one of" };
        match self.force {
            None => format!("{which} {refs}"),
            Some(true) => format!("{which} {refs} forced"),
            Some(false) => format!("{which} {refs} not forced"),
        }
    }
}

/// One set, as small as possible, for each combination of matchers that some set fits.
fn sets(matchers: &[Matcher<'_>]) -> Result<Vec<Pushed>, TooMany> {
    let single = cells(matchers)?;
    let none = Pushed {
        updates: Vec::new(),
        fits: matchers.iter().map(|matcher| matcher.all).collect(),
    };
    let mut seen: HashSet<Vec<bool>> = HashSet::new();
    let mut sets: Vec<Pushed> = Vec::new();
    let mut level = vec![none];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (set, cell) in level
            .iter()
            .flat_map(|set| single.iter().map(move |cell| (set, cell)))
        {
            let fits: Vec<bool> = matchers
                .iter()
                .zip(set.fits.iter().zip(&cell.fits))
                .map(|(matcher, (set, cell))| if matcher.all { *set && *cell } else { *set || *cell })
                .collect();
            if seen.insert(fits.clone()) {
                let updates = [set.updates.clone(), cell.updates.clone()].concat();
                next.push(Pushed { updates, fits });
            }
            if seen.len() > SET_LIMIT {
                return Err(TooMany);
            }
        }
        let found = std::mem::replace(&mut level, next);
        sets.extend(found);
    }
    // The push that changes nothing came first; another that fits the same stands for it better.
    let empty = sets.first().map(|set| set.fits.clone());
    if empty.is_some_and(|fits| seen.contains(&fits)) {
        sets.remove(0);
    }
    Ok(sets)
}

/// Single refs that tell the matchers apart, forced and not, branches first.
fn cells(matchers: &[Matcher<'_>]) -> Result<Vec<Pushed>, TooMany> {
    let literal = |text: &str| Segment::Literal(text.to_owned());
    let branches = PathPattern::of(vec![literal("refs"), literal("heads"), Segment::One]);
    let patterns = matchers.iter().flat_map(|matcher| matcher.refs);
    // A path that ends in a slash names no ref: it must not stand for those that do.
    let folder = PathPattern::folder();
    let explored: Vec<&PathPattern> = [&branches].into_iter().chain(patterns).chain([&folder]).collect();
    let mut samples = paths::samples(&explored)?;
    samples.retain(|sample| !sample.text.ends_with('/'));
    samples.sort_by_key(|sample| !sample.fits.contains(&0));
    let mut cells = Vec::new();
    for (sample, forced) in [false, true]
        .into_iter()
        .flat_map(|forced| samples.iter().map(move |it| (it, forced)))
    {
        let name = sample.text.trim_start_matches('/');
        let Ok(raw) = percent_decode_str(name).decode_utf8() else {
            continue;
        };
        let fits = |matcher: &Matcher<'_>| {
            let named = matcher.refs.is_empty() || matcher.refs.iter().any(|own| own.matches_relative(name));
            named && matcher.force.is_none_or(|force| force == forced)
        };
        cells.push(Pushed {
            updates: vec![RefUpdate {
                name: raw.into_owned(),
                forced,
            }],
            fits: matchers.iter().map(fits).collect(),
        });
    }
    Ok(cells)
}
