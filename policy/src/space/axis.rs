//! The dimensions of a request, and how rules cut each of them into pieces within which all say the same.
use super::cover::{Cells, Extent, Part, Vocabulary};
use crate::rule::Rule;
use crate::{Moment, RefUpdate};
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

/// A dimension in which requests differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// TCP port.
    Port,
    /// What is spoken.
    Protocol,
    /// Whether it is git's, and to read or to write.
    Git,
    /// Repository of a git request.
    Repository,
    /// Refs that a push changes.
    Refs,
    /// HTTP method.
    Method,
    /// HTTP path.
    Path,
    /// Whether the query can be read.
    QueryForm,
    /// Value of a query parameter.
    Query(String),
    /// Value of a header.
    Header(String),
    /// Database that a log-in asks for.
    Database,
    /// Log-in name of ssh or PostgreSQL.
    User,
    /// A fact about the run.
    Who(String),
    /// When.
    Time,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port => f.write_str("port"),
            Self::Protocol => f.write_str("protocol"),
            Self::Git => f.write_str("git"),
            Self::Repository => f.write_str("repository"),
            Self::Refs => f.write_str("refs"),
            Self::Method => f.write_str("methods"),
            Self::Path => f.write_str("path"),
            Self::QueryForm => f.write_str("query"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Database => f.write_str("database"),
            Self::User => f.write_str("log-in"),
            Self::Who(name) => write!(f, "{name}"),
            Self::Time => f.write_str("during"),
        }
    }
}

impl Serialize for Axis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a piece of an axis puts into a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    Port(u16, u16),
    Protocol(Spoken),
    Method(String),
    /// A whole request of its kind.
    Kind(Moment),
    /// What a push changes.
    Pushed(Option<Vec<RefUpdate>>),
    Path(String),
    /// Values of one header or parameter, in order.
    Values(Vec<String>),
    /// A query without parameters, or one that cannot be read.
    QueryForm(bool),
    Fact(String),
    LogIn(String),
    At(jiff::Timestamp),
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Https,
    PlainHttp,
    Unread,
    Ssh,
    Postgres,
}

/// A piece of an axis.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) setting: Setting,
    /// The rules, by place among the candidates, that may still match.
    pub(super) keeps: Vec<u32>,
    /// Pieces with the same rules are one piece, unless this differs.
    pub(super) flavour: usize,
}

/// An axis cut into pieces, with the words for them.
pub(super) struct Split {
    pub(super) slots: Vec<Slot>,
    words: Words,
}

enum Words {
    Names(Vocabulary),
    Ports,
}

impl Split {
    /// Each name with the slots that it means.
    pub(super) fn named(slots: Vec<Slot>, names: Vec<(String, Vec<usize>)>) -> Self {
        let count = slots.len();
        let names = names
            .into_iter()
            .map(|(name, members)| (name, Cells::of(count, members)))
            .collect();
        Self {
            slots,
            words: Words::Names(Vocabulary::new(count, names)),
        }
    }

    /// Exactly these slots, in words.
    pub(super) fn describe(&self, slots: &BTreeSet<usize>) -> Extent {
        match &self.words {
            Words::Names(names) => names.describe(&Cells::of(self.slots.len(), slots.iter().copied())),
            Words::Ports => {
                let inside = ranges(self.slots.iter().enumerate().filter(|(n, _)| slots.contains(n)));
                let outside = ranges(self.slots.iter().enumerate().filter(|(n, _)| !slots.contains(n)));
                match outside.len() {
                    0 => Extent::default(),
                    less if less < inside.len() => Extent(vec![Part::any_except(outside)]),
                    _ => Extent(inside.into_iter().map(Part::of).collect()),
                }
            }
        }
    }
}

/// Ports of these slots, neighbours joined; the slots come in ascending order.
fn ranges<'s>(slots: impl Iterator<Item = (usize, &'s Slot)>) -> Vec<String> {
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (_, slot) in slots {
        let Setting::Port(low, high) = slot.setting else {
            continue;
        };
        match joined.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(low) => *last = high,
            _ => joined.push((low, high)),
        }
    }
    joined
        .into_iter()
        .map(|(low, high)| match low == high {
            true => low.to_string(),
            false => format!("{low}-{high}"),
        })
        .collect()
}

/// Places of the candidates that stay.
pub(super) fn keep(rules: &[&Rule], stays: impl Fn(&Rule) -> bool) -> Vec<u32> {
    (0_u32..)
        .zip(rules)
        .filter(|(_, rule)| stays(rule))
        .map(|(place, _)| place)
        .collect()
}

/// By the ranges of the rules.
pub(super) fn ports(rules: &[&Rule]) -> Split {
    let mut starts: BTreeSet<u16> = BTreeSet::from([1]);
    for (low, high) in rules.iter().flat_map(|rule| &rule.ports) {
        starts.insert((*low).max(1));
        starts.extend(high.checked_add(1));
    }
    let starts: Vec<u16> = starts.into_iter().collect();
    let slots = starts.iter().enumerate().map(|(place, low)| {
        let high = starts.get(place + 1).map_or(u16::MAX, |next| next - 1);
        Slot {
            setting: Setting::Port(*low, high),
            keeps: keep(rules, |rule| {
                rule.ports.is_empty() || rule.ports.iter().any(|(from, to)| (*from..=*to).contains(low))
            }),
            flavour: 0,
        }
    });
    Split {
        slots: slots.collect(),
        words: Words::Ports,
    }
}

/// What may be spoken; only deciding itself knows what each rule makes of it.
pub(super) fn protocols(rules: &[&Rule]) -> Split {
    let all = [
        Spoken::Https,
        Spoken::PlainHttp,
        Spoken::Unread,
        Spoken::Ssh,
        Spoken::Postgres,
    ];
    let slots = all.iter().enumerate().map(|(flavour, spoken)| Slot {
        setting: Setting::Protocol(*spoken),
        keeps: keep(rules, |_| true),
        flavour,
    });
    let names = [
        ("http", vec![0, 1]),
        ("https", vec![0]),
        ("plain http", vec![1]),
        ("unread streams", vec![2]),
        ("ssh", vec![3]),
        ("postgres", vec![4]),
    ];
    Split::named(
        slots.collect(),
        names
            .into_iter()
            .map(|(name, slots)| (name.to_owned(), slots))
            .collect(),
    )
}

/// The methods that rules name, and one that none does; of a request that is git's those with which it stays what it is.
pub(super) fn methods(rules: &[&Rule], moment: &Moment) -> Split {
    let mut names: BTreeSet<&str> = rules
        .iter()
        .flat_map(|rule| &rule.methods)
        .map(String::as_str)
        .collect();
    names.retain(|name| super::git::stays_with(moment, name));
    let usual = ["GET", "POST", "PUT", "HEAD"].map(str::to_owned).into_iter();
    let strange = (0..=names.len()).map(|n| format!("OTHER{n}"));
    let other = usual
        .chain(strange)
        .find(|name| !names.contains(name.as_str()) && super::git::stays_with(moment, name));
    let methods: Vec<String> = names.iter().map(|name| (*name).to_owned()).chain(other).collect();
    let slots = methods.iter().map(|method| Slot {
        setting: Setting::Method(method.clone()),
        keeps: keep(rules, |rule| {
            rule.methods.is_empty() || rule.methods.contains(method)
        }),
        flavour: 0,
    });
    let names = names
        .iter()
        .enumerate()
        .map(|(slot, name)| ((*name).to_owned(), vec![slot]));
    Split::named(slots.collect(), names.collect())
}

/// Which of the windows are open, over the year that begins at `from`.
pub(super) fn times(rules: &[&Rule], from: jiff::Timestamp) -> Split {
    let mut windows = Vec::new();
    for during in rules.iter().filter_map(|rule| rule.during.as_ref()) {
        if !windows.contains(&during) {
            windows.push(during);
        }
    }
    let mut instants = vec![from];
    for window in &windows {
        instants.extend(super::time::boundaries(window, from));
    }
    instants.sort_unstable();
    instants.dedup();
    let mut open_at: Vec<(Vec<usize>, jiff::Timestamp)> = Vec::new();
    for instant in instants {
        let open: Vec<usize> = (0..windows.len())
            .filter(|number| windows.get(*number).is_some_and(|window| window.holds(instant)))
            .collect();
        if open_at.iter().all(|(known, _)| *known != open) {
            open_at.push((open, instant));
        }
    }
    let slots = open_at.iter().map(|(_, instant)| Slot {
        setting: Setting::At(*instant),
        keeps: keep(rules, |rule| rule.is_in_force(*instant)),
        flavour: 0,
    });
    let names = windows.iter().enumerate().map(|(number, window)| {
        let inside = open_at
            .iter()
            .enumerate()
            .filter(|(_, (open, _))| open.contains(&number));
        (window.to_string(), inside.map(|(slot, _)| slot).collect())
    });
    Split::named(slots.collect(), names.collect())
}
