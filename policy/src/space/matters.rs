//! Axes whose pieces come from patterns: facts, paths, headers and query parameters.
use super::axis::{Setting, Slot, Split, keep};
use super::globs::{self, Alphabet, Sample, TooMany};
use super::paths;
use crate::Protocol;
use crate::document::Effect;
use crate::path_pattern::PathPattern;
use crate::rule::{Condition, Rule};
use std::collections::BTreeSet;

/// A path that can be read in two ways whatever a policy says.
const AMBIGUOUS: &str = "/x//x";

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
pub(super) fn paths(rules: &[&Rule]) -> Result<Split, TooMany> {
    let mut patterns: Vec<&PathPattern> = rules.iter().flat_map(|rule| &rule.paths).collect();
    patterns.sort_by_key(|pattern| pattern.as_str());
    patterns.dedup();
    let samples = match patterns.is_empty() {
        true => Vec::new(),
        false => paths::samples(&patterns)?,
    };
    let mut slots = Vec::new();
    let own = own_patterns(rules, &patterns);
    for sample in &samples {
        let mut fits = vec![false; patterns.len()];
        for number in &sample.fits {
            fits[*number] = true;
        }
        let stays = |own: &Vec<usize>| own.is_empty() || own.iter().any(|number| fits[*number]);
        slots.push(Slot {
            setting: Setting::Path(sample.text.clone()),
            keeps: (0_u32..)
                .zip(&own)
                .filter(|(_, own)| stays(own))
                .map(|(place, _)| place)
                .collect(),
            flavour: 0,
        });
    }
    let mut names = names(
        patterns
            .iter()
            .map(|pattern| pattern.as_str().to_owned())
            .collect(),
        &samples,
    );
    match patterns.is_empty() {
        true => slots.push(Slot {
            setting: Setting::Path("/".to_owned()),
            keeps: keep(rules, |_| true),
            flavour: 0,
        }),
        false => {
            names.push(("ambiguous paths".to_owned(), vec![slots.len()]));
            slots.push(Slot {
                setting: Setting::Path(AMBIGUOUS.to_owned()),
                keeps: keep(rules, |rule| is_blind(rule) || rule.effect != Effect::Allow),
                flavour: 1,
            });
        }
    }
    Ok(Split::named(slots, names))
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
