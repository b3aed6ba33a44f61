//! Counting what changed: in all, by host, by rule and by agent, in bounded memory.
use crate::host::shown;
use crate::recorded::{Outcome, RecordFault};
use serde::Serialize;
use std::collections::HashMap;

/// Most groups of one table; what comes after them is counted together.
const GROUP_LIMIT: usize = 5_000;
/// Most unreadable lines that are shown.
const UNREADABLE_SHOWN: usize = 5;

/// What a policy changes for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Nothing.
    None,
    /// It would be refused now.
    Blocked,
    /// A person would be asked now.
    Asked,
    /// It would pass now.
    Allowed,
    /// It depends on what is not recorded.
    Untold,
}

/// How many requests would fare how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Newly refused.
    pub blocked: u64,
    /// Newly asked for.
    pub asked: u64,
    /// Newly let through.
    pub allowed: u64,
    /// Depending on what is not recorded.
    pub untold: u64,
    /// As before.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchanged: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.blocked += other.blocked;
        self.asked += other.asked;
        self.allowed += other.allowed;
        self.untold += other.untold;
        self.unchanged += other.unchanged;
    }

    fn one(change: Change) -> Self {
        let mut counts = Self::default();
        match change {
            Change::None => counts.unchanged = 1,
            Change::Blocked => counts.blocked = 1,
            Change::Asked => counts.asked = 1,
            Change::Allowed => counts.allowed = 1,
            Change::Untold => counts.untold = 1,
        }
        counts
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.blocked + self.asked + self.allowed + self.untold + self.unchanged
    }
}

/// One request that would fare otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// How.
    pub change: Change,
    /// Id of its record.
    pub id: String,
    /// When it was decided.
    pub at: jiff::Timestamp,
    /// What was asked for.
    pub request: String,
    /// What became of it.
    pub old: Outcome,
    /// Why.
    pub old_reason: String,
    /// What would become of it; absent where that cannot be told.
    pub new: Option<Outcome>,
    /// Why, or why it cannot be told.
    pub new_reason: String,
}

/// Requests that have something in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// How many fare how.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first ones.
    pub examples: Vec<Example>,
}

/// By which a request is grouped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) host: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) session: &'a str,
    pub(super) user: &'a str,
}

/// Groups by one or two words, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) groups: HashMap<(String, String), Group>,
    /// What found no room.
    pub(super) others: Counts,
}

impl Table {
    fn group(&mut self, key: (String, String)) -> Option<&mut Group> {
        if self.groups.len() >= GROUP_LIMIT && !self.groups.contains_key(&key) {
            return None;
        }
        Some(self.groups.entry(key).or_default())
    }

    fn count(&mut self, key: (&str, &str), change: Change, example: Option<&Example>, most: usize) {
        let one = Counts::one(change);
        match self.group((key.0.to_owned(), key.1.to_owned())) {
            Some(group) => {
                group.counts.add(&one);
                group
                    .examples
                    .extend(example.filter(|_| group.examples.len() < most).cloned());
            }
            None => self.others.add(&one),
        }
    }

    fn add(&mut self, other: Self, most: usize) {
        self.others.add(&other.others);
        // In an order of its own, so that which groups find room depends on the log alone.
        let mut groups: Vec<_> = other.groups.into_iter().collect();
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (key, from) in groups {
            match self.group(key) {
                Some(group) => {
                    group.counts.add(&from.counts);
                    let room = most.saturating_sub(group.examples.len());
                    group.examples.extend(from.examples.into_iter().take(room));
                }
                None => self.others.add(&from.counts),
            }
        }
    }
}

/// A line of the log that is no record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its beginning.
    pub line: String,
    /// What is wrong with it.
    pub why: String,
}

impl Unreadable {
    pub(super) fn new(line: &str, fault: &RecordFault) -> Self {
        Self {
            line: shown(line),
            why: shown(&fault.to_string()),
        }
    }
}

/// Lines that are no records: the first ones, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) count: u64,
    pub(super) first: Vec<Unreadable>,
}

impl Unread {
    pub(super) fn push(&mut self, line: Unreadable) {
        self.count += 1;
        if self.first.len() < UNREADABLE_SHOWN {
            self.first.push(line);
        }
    }
}

/// The sum of some decided records. Sums of pieces of a log are added in the log's order.
#[derive(Debug)]
pub struct Tally {
    most: usize,
    pub(super) counts: Counts,
    /// Records that no policy decided.
    pub(super) others: u64,
    pub(super) unreadable: Unread,
    pub(super) times: Option<(jiff::Timestamp, jiff::Timestamp)>,
    pub(super) hosts: Table,
    pub(super) rules: Table,
    pub(super) agents: Table,
}

impl Tally {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            counts: Counts::default(),
            others: 0,
            unreadable: Unread::default(),
            times: None,
            hosts: Table::default(),
            rules: Table::default(),
            agents: Table::default(),
        }
    }

    pub(super) fn see(&mut self, at: jiff::Timestamp) {
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
    }

    pub(super) fn count(&mut self, change: Change, keys: Keys<'_>, example: impl FnOnce() -> Example) {
        self.counts.add(&Counts::one(change));
        // An example that no group has room for is not made.
        let wanted = [
            (&self.hosts, (keys.host, "")),
            (&self.rules, (keys.old, keys.new)),
            (&self.agents, (keys.session, keys.user)),
        ]
        .into_iter()
        .any(|(table, (a, b))| {
            let group = table.groups.get(&(a.to_owned(), b.to_owned()));
            group.is_none_or(|group| group.examples.len() < self.most)
        });
        let example = wanted.then(example);
        let example = example.as_ref();
        self.hosts.count((keys.host, ""), change, example, self.most);
        self.rules.count((keys.old, keys.new), change, example, self.most);
        self.agents
            .count((keys.session, keys.user), change, example, self.most);
    }

    /// Adds the sum of what comes after this in the log.
    pub fn add(&mut self, next: Self) {
        self.counts.add(&next.counts);
        self.others += next.others;
        self.unreadable.count += next.unreadable.count;
        let room = UNREADABLE_SHOWN.saturating_sub(self.unreadable.first.len());
        self.unreadable
            .first
            .extend(next.unreadable.first.into_iter().take(room));
        for at in next.times.into_iter().flat_map(|(first, last)| [first, last]) {
            self.see(at);
        }
        self.hosts.add(next.hosts, self.most);
        self.rules.add(next.rules, self.most);
        self.agents.add(next.agents, self.most);
    }
}
