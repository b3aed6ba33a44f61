//! The parts of a policy's files that may go, with their places.
use super::{Place, protects};
use crate::diagnostic::{At, Position};
use crate::document::{Document, RulePart, SetPart};
use crate::host_pattern::HostPattern;
use crate::path_pattern::{PathPattern, Slashes};
use crate::recorded::{Recorded, Shape};
use crate::{PolicyText, include};
use std::collections::HashMap;

/// What kind of part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Rule,
    Host,
    Method,
    Path,
    /// A credential's definition; its number stands where the rule's does.
    Credential,
    /// An entry of a set; the set's number stands where the rule's does.
    Entry,
}

/// A text with what it names; several things where it names a set.
#[derive(Debug)]
pub(super) struct Part<T> {
    pub(super) text: At<String>,
    named: Vec<T>,
    /// The number of the set.
    pub(super) set: Option<usize>,
}

/// A rule with its parts.
#[derive(Debug)]
pub(super) struct RuleParts {
    pub(super) id: At<String>,
    pub(super) protects: bool,
    /// Shipped, so that it is not for its users to change.
    pub(super) shipped: bool,
    pub(super) hosts: Vec<Part<HostPattern>>,
    pub(super) methods: Vec<At<String>>,
    pub(super) paths: Vec<Part<PathPattern>>,
    pub(super) uses: Vec<At<String>>,
}

/// A set, and whether something that protects names it.
#[derive(Debug)]
pub(super) struct SetParts {
    pub(super) name: String,
    pub(super) entries: Vec<At<String>>,
    pub(super) kept: bool,
}

/// All of a policy.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) rules: Vec<RuleParts>,
    pub(super) credentials: Vec<At<String>>,
    pub(super) sets: Vec<SetParts>,
    /// Tests that name a rule.
    pub(super) tests: Vec<At<String>>,
}

/// Of texts that compile.
pub(super) fn parts(texts: &[PolicyText]) -> Parts {
    let documents = include::collect(texts, &mut Vec::new());
    let sets: Vec<&SetPart> = documents.iter().flat_map(|document| &document.sets).collect();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (number, set) in sets.iter().enumerate() {
        numbers.insert(set.name.value.clone(), number);
        numbers.insert(format!("preset:{}", set.name.value), number);
    }
    let known = Known { sets: &sets, numbers };
    let mut parts = Parts {
        rules: documents
            .iter()
            .flat_map(|document| &document.rules)
            .map(|rule| known.rule(rule))
            .collect(),
        credentials: documents
            .iter()
            .flat_map(|document| &document.credentials)
            .map(|credential| credential.name.clone())
            .collect(),
        sets: sets
            .iter()
            .map(|set| SetParts {
                name: set.name.value.clone(),
                entries: set.entries.clone(),
                kept: is_shipped(&set.name.at),
            })
            .collect(),
        tests: documents.iter().flat_map(tests).collect(),
    };
    let bound = documents
        .iter()
        .flat_map(|document| &document.credentials)
        .flat_map(|credential| &credential.hosts)
        .filter_map(|host| known.numbers.get(&host.value).copied());
    let guarded = parts.rules.iter().filter(|rule| rule.protects).flat_map(|rule| {
        let paths = rule.paths.iter().filter_map(|path| path.set);
        rule.hosts.iter().filter_map(|host| host.set).chain(paths)
    });
    let kept: Vec<usize> = bound.chain(guarded).collect();
    for number in kept {
        if let Some(set) = parts.sets.get_mut(number) {
            set.kept = true;
        }
    }
    parts
}

fn tests(document: &Document) -> impl Iterator<Item = At<String>> {
    document.tests.iter().filter_map(|test| test.rule.clone())
}

fn is_shipped(at: &Position) -> bool {
    at.file.starts_with("preset:")
}

struct Known<'a> {
    sets: &'a [&'a SetPart],
    numbers: HashMap<String, usize>,
}

impl Known<'_> {
    fn rule(&self, rule: &RulePart) -> RuleParts {
        let slashes = match &rule.to.encoded_slash {
            Some(encoded) if encoded.value => Slashes::Encoded,
            _ => Slashes::Plain,
        };
        let host = |text: &str| HostPattern::parse(text).ok();
        let path = |text: &str| PathPattern::parse(text, slashes).ok();
        RuleParts {
            id: rule.id.clone(),
            protects: protects(rule.effect.value),
            shipped: is_shipped(&rule.id.at),
            hosts: self.all(rule.to.hosts.as_deref(), host),
            methods: rule.to.methods.clone().unwrap_or_default(),
            paths: self.all(rule.to.paths.as_deref(), path),
            uses: rule.uses.clone(),
        }
    }

    fn all<T>(&self, texts: Option<&[At<String>]>, read: impl Fn(&str) -> Option<T>) -> Vec<Part<T>> {
        let part = |text: &At<String>| {
            let set = self.numbers.get(&text.value).copied();
            let named = match set.and_then(|number| self.sets.get(number)) {
                // Each entry in its place, so that what it names is found again.
                Some(set) => set
                    .entries
                    .iter()
                    .filter_map(|entry| read(&entry.value))
                    .collect(),
                None => read(&text.value).into_iter().collect(),
            };
            Part {
                text: text.clone(),
                named,
                set,
            }
        };
        texts.unwrap_or_default().iter().map(part).collect()
    }
}

impl Parts {
    /// Marks what of a rule a request that it matches needs.
    pub(super) fn used(&self, number: usize, recorded: &Recorded<'_>, mark: &mut impl FnMut(Place)) {
        let Some(rule) = self.rules.get(number) else {
            return;
        };
        mark((number, Kind::Rule, 0));
        each(
            &rule.hosts,
            |host| host.matches(&recorded.destination.host),
            |at, entry| {
                mark((number, Kind::Host, at));
                if let Some((set, entry)) = entry {
                    mark((set, Kind::Entry, entry));
                }
            },
        );
        let Shape::Http { method, path, .. } = &recorded.shape else {
            return;
        };
        for (at, own) in rule.methods.iter().enumerate() {
            // GET and HEAD are one thing to whoever reads a policy.
            let pair = matches!((own.value.as_str(), &**method), ("GET", "HEAD") | ("HEAD", "GET"));
            if own.value == **method || pair {
                mark((number, Kind::Method, at));
            }
        }
        let fits = |own: &PathPattern| {
            path.as_ref()
                .is_none_or(|path| path.ambiguity().is_some() || own.matches(path))
        };
        each(&rule.paths, fits, |at, entry| {
            mark((number, Kind::Path, at));
            if let Some((set, entry)) = entry {
                mark((set, Kind::Entry, entry));
            }
        });
    }

    pub(super) fn credential(&self, name: &str, mark: &mut impl FnMut(Place)) {
        if let Some(number) = self.credentials.iter().position(|own| own.value == name) {
            mark((number, Kind::Credential, 0));
        }
    }
}

/// Tells which parts fit, and which entries of a set.
fn each<T>(
    parts: &[Part<T>],
    fits: impl Fn(&T) -> bool,
    mut mark: impl FnMut(usize, Option<(usize, usize)>),
) {
    for (at, part) in parts.iter().enumerate() {
        for (entry, _) in part.named.iter().enumerate().filter(|(_, named)| fits(named)) {
            mark(at, part.set.map(|set| (set, entry)));
        }
    }
}
