//! Axes whose pieces come from patterns: facts, paths, headers and query parameters.
use super::axis::{Setting, Slot, Split, keep};
use super::globs::{self, Alphabet, Sample, TooMany};
use super::{git, paths};
use crate::condition::Condition;
use crate::document::Effect;
use crate::path_pattern::{PathPattern, Slashes};
use crate::rule::Rule;
use crate::{Moment, Protocol};
use std::collections::BTreeSet;

/// A path that can be read in two ways whatever a policy says.
const AMBIGUOUS: &str = "/x//x";
/// The same, where git may be meant.
const AMBIGUOUS_GIT: &str = "/x//git-upload-pack";
/// Fits every path with an encoded slash.
const SLASHED: &str = "/**/*%2F*/**";

/// What a fact may be, as far as rules tell.
pub(super) fn facts(rules: &[&Rule], fact: &str) -> Result<Split, TooMany> {
    let named = |rule: &Rule| -> Vec<Vec<String>> {
        rule.who
            .iter()
            .filter(|(name, _)| name == fact)
            .map(|(_, values)| values.clone())
            .collect()
    };
    let all: BTreeSet<String> = rules.iter().flat_map(|rule| named(rule)).flatten().collect();
    let all: Vec<String> = all.into_iter().collect();
    let pieces: Vec<globs::Pieces> = all.iter().map(|glob| globs::pieces(glob)).collect();
    // Where nothing fits, the fact may as well be unknown.
    let mut samples = vec![Sample {
        text: String::new(),
        fits: Vec::new(),
    }];
    samples.extend(
        globs::samples(&pieces, Alphabet::Words)?
            .into_iter()
            .filter(|sample| !sample.fits.is_empty()),
    );
    let slots = samples.iter().map(|sample| {
        let fits = |values: &Vec<String>| {
            values
                .iter()
                .any(|value| sample.fits.iter().any(|number| all.get(*number) == Some(value)))
        };
        Slot {
            setting: Setting::Fact(sample.text.clone()),
            keeps: keep(rules, |rule| named(rule).iter().all(fits)),
            flavour: 0,
        }
    });
    Ok(Split::named(slots.collect(), names(all.clone(), &samples)))
}

/// Each pattern with the samples that fit it.
fn names(patterns: Vec<String>, samples: &[Sample]) -> Vec<(String, Vec<usize>)> {
    let named = patterns.into_iter().enumerate().map(|(number, pattern)| {
        let inside = samples
            .iter()
            .enumerate()
            .filter(|(_, sample)| sample.fits.contains(&number));
        (pattern, inside.map(|(slot, _)| slot).collect())
    });
    named.collect()
}

/// Every kind of path that rules tell apart, ambiguous ones too.
pub(super) fn paths(rules: &[&Rule], moment: &Moment) -> Result<Split, TooMany> {
    let beside_git = git::is_looked_at(rules);
    let is_git = beside_git && git::view(moment).is_some();
    let mut patterns: Vec<&PathPattern> = rules.iter().flat_map(|rule| &rule.paths).collect();
    patterns.sort_by_key(|pattern| pattern.as_str());
    patterns.dedup();
    if patterns.is_empty() && !beside_git {
        let only = Slot {
            setting: Setting::Path("/".to_owned()),
            keeps: keep(rules, |_| true),
            flavour: 0,
        };
        return Ok(Split::named(vec![only], Vec::new()));
    }
    let slashed = PathPattern::parse(SLASHED, Slashes::Encoded).map_err(|_| TooMany)?;
    let mut explored = patterns.clone();
    let has_slashes = rules.iter().any(|rule| rule.encoded_slash);
    if has_slashes {
        explored.push(&slashed);
    }
    let marker = if has_slashes { patterns.len() } else { usize::MAX };
    let markers = match beside_git {
        true => git_markers(rules)?,
        false => Vec::new(),
    };
    explored.extend(&markers);
    let mut samples = paths::samples(&explored)?;
    if beside_git {
        samples.retain(|sample| match git::is_path(&sample.text) {
            true => is_git && sample.fits.contains(&marker),
            false => !is_git,
        });
    }
    let own = own_patterns(rules, &patterns);
    let mut slots: Vec<Slot> = samples
        .iter()
        .map(|sample| path_slot(rules, &own, sample, marker))
        .collect();
    let mut names = path_names(&patterns, &samples, marker);
    names.push(("ambiguous paths".to_owned(), vec![slots.len()]));
    slots.push(Slot {
        setting: Setting::Path(if is_git { AMBIGUOUS_GIT } else { AMBIGUOUS }.to_owned()),
        keeps: keep(rules, |rule| is_blind(rule) || rule.effect != Effect::Allow),
        flavour: 1,
    });
    if beside_git && !is_git {
        let is_git = |place: &u32| {
            let rule = rules.get(*place as usize);
            rule.is_some_and(|rule| rule.protocol == Some(Protocol::Git))
        };
        for slot in &mut slots {
            slot.keeps.retain(|place| !is_git(place));
        }
    }
    Ok(Split::named(slots, names))
}

/// What tells paths that are git's, or may be, from others.
fn git_markers(rules: &[&Rule]) -> Result<Vec<PathPattern>, TooMany> {
    let mut texts = vec!["/**/info/refs", "/**/git-upload-pack", "/**/git-receive-pack"];
    if rules.iter().any(|rule| rule.encoded_slash) {
        texts.extend(["/**/*refs*/**", "/**/*upload-pack*/**", "/**/*receive-pack*/**"]);
    }
    let pattern = |text: &str| PathPattern::parse(text, Slashes::Plain).map_err(|_| TooMany);
    texts.into_iter().map(pattern).collect()
}

/// `marker` is the number of the pattern that every path with an encoded slash fits.
fn path_slot(rules: &[&Rule], own: &[Vec<usize>], sample: &Sample, marker: usize) -> Slot {
    let is_slashed = sample.fits.contains(&marker);
    let stays = |rule: &Rule, own: &Vec<usize>| {
        if own.is_empty() {
            return true;
        }
        if is_slashed && !rule.encoded_slash {
            return rule.effect != Effect::Allow;
        }
        own.iter().any(|number| sample.fits.binary_search(number).is_ok())
    };
    let kept = (0_u32..).zip(rules.iter().zip(own));
    Slot {
        setting: Setting::Path(sample.text.clone()),
        keeps: kept
            .filter(|(_, (rule, own))| stays(rule, own))
            .map(|(place, _)| place)
            .collect(),
        flavour: if is_slashed { 2 } else { 0 },
    }
}

/// Each pattern with the slots of plain paths, and with those of paths with an encoded slash.
fn path_names(patterns: &[&PathPattern], samples: &[Sample], marker: usize) -> Vec<(String, Vec<usize>)> {
    let slots = |number: usize, slashed: bool| -> Vec<usize> {
        let fits =
            |sample: &Sample| sample.fits.contains(&number) && sample.fits.contains(&marker) == slashed;
        let inside = samples.iter().enumerate().filter(|(_, sample)| fits(sample));
        inside.map(|(slot, _)| slot).collect()
    };
    let mut names = Vec::new();
    for (number, pattern) in patterns.iter().enumerate() {
        names.push((pattern.as_str().to_owned(), slots(number, false)));
        names.push((
            format!("{} with an encoded slash", pattern.as_str()),
            slots(number, true),
        ));
    }
    names.push(("paths with an encoded slash".to_owned(), slots(marker, true)));
    names.retain(|(_, slots)| !slots.is_empty());
    names
}

/// For each rule the numbers of its patterns; none where it does not look at paths.
fn own_patterns(rules: &[&Rule], patterns: &[&PathPattern]) -> Vec<Vec<usize>> {
    let number = |pattern: &PathPattern| {
        patterns
            .binary_search_by_key(&pattern.as_str(), |own| own.as_str())
            .ok()
    };
    rules
        .iter()
        .map(|rule| match is_blind(rule) {
            true => Vec::new(),
            false => rule.paths.iter().filter_map(number).collect(),
        })
        .collect()
}

/// Whether a rule does not look at paths.
fn is_blind(rule: &Rule) -> bool {
    rule.paths.is_empty() || matches!(rule.protocol, Some(Protocol::Tcp | Protocol::Tls))
}

/// The values of a header or parameter: none, one of each kind, or two.
pub(super) fn values(
    rules: &[&Rule],
    conditions: &dyn Fn(&Rule) -> Vec<Condition>,
) -> Result<Split, TooMany> {
    let all: BTreeSet<String> = rules
        .iter()
        .flat_map(|rule| conditions(rule))
        .flat_map(|condition| condition.values)
        .collect();
    let all: Vec<String> = all.into_iter().collect();
    let pieces: Vec<globs::Pieces> = all.iter().map(|glob| globs::pieces(glob)).collect();
    let samples = globs::samples(&pieces, Alphabet::Text)?;
    let mut settings: Vec<Vec<String>> = samples.iter().map(|sample| vec![sample.text.clone()]).collect();
    let mut names = names(all, &samples);
    names.push(("absent".to_owned(), vec![settings.len()]));
    settings.push(Vec::new());
    names.push(("more than once".to_owned(), vec![settings.len()]));
    settings.push(vec!["x".to_owned(), "y".to_owned()]);
    let slots = settings.into_iter().enumerate().map(|(flavour, values)| Slot {
        setting: Setting::Values(values),
        keeps: keep(rules, |_| true),
        flavour,
    });
    Ok(Split::named(slots.collect(), names))
}

/// What a log-in may name, as far as these globs tell.
pub(super) fn log_ins(rules: &[&Rule], globs: fn(&Rule) -> &Vec<String>) -> Result<Split, TooMany> {
    let all: BTreeSet<String> = rules.iter().flat_map(|rule| globs(rule)).cloned().collect();
    let all: Vec<String> = all.into_iter().collect();
    let pieces: Vec<globs::Pieces> = all.iter().map(|glob| globs::pieces(glob)).collect();
    let samples = globs::samples(&pieces, Alphabet::Text)?;
    let slots = samples.iter().enumerate().map(|(flavour, sample)| Slot {
        setting: Setting::LogIn(sample.text.clone()),
        keeps: keep(rules, |_| true),
        flavour,
    });
    Ok(Split::named(slots.collect(), names(all, &samples)))
}

/// A query that can be read, or not.
pub(super) fn query_forms(rules: &[&Rule]) -> Split {
    let slots = [true, false]
        .into_iter()
        .enumerate()
        .map(|(flavour, readable)| Slot {
            setting: Setting::QueryForm(readable),
            keeps: keep(rules, |_| true),
            flavour,
        });
    let names = vec![
        ("readable".to_owned(), vec![0]),
        ("unreadable".to_owned(), vec![1]),
    ];
    Split::named(slots.collect(), names)
}
