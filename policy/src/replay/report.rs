//! What a replay found, in a fixed order, as a table or as JSON.
use super::tally::{Counts, Example, Group, Table, Tally, Unreadable};
use crate::host::shown;
use serde::Serialize;
use std::fmt;

/// Groups of each kind that the table shows; JSON has them all.
const ROWS: usize = 20;
/// Columns, where whoever prints does not say.
const WIDTH: usize = 100;

/// What a policy would have made of recorded traffic. `{:120}` prints it 120 columns wide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// Hash of the policy.
    pub policy_hash: String,
    /// When the first request was decided.
    pub first: Option<jiff::Timestamp>,
    /// When the last one was.
    pub last: Option<jiff::Timestamp>,
    /// How many requests, and how they fare.
    pub requests: u64,
    /// How many would fare how.
    pub counts: Counts,
    /// Records that no policy decided: wishes for access, and what was malformed before any rule could look at it.
    pub others: u64,
    /// Lines of the log that are no records.
    pub unreadable: u64,
    /// The first of those.
    pub unreadable_lines: Vec<Unreadable>,
    /// By host; where most changes first.
    pub hosts: Groups<HostKey>,
    /// By the rule that decided, and the one that would.
    pub rules: Groups<RuleKey>,
    /// By session and user.
    pub agents: Groups<AgentKey>,
}

/// Groups of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Groups<K> {
    /// Where most changes first.
    pub groups: Vec<Keyed<K>>,
    /// What is in none of them, where there were too many.
    pub others: Counts,
}

/// A group with what its requests have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Keyed<K> {
    /// What they have in common.
    #[serde(flatten)]
    pub key: K,
    /// How many, and examples.
    #[serde(flatten)]
    pub group: Group,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostKey {
    /// Name or address.
    pub host: String,
}

/// A change of rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleKey {
    /// The rule that decided.
    pub old: String,
    /// The one that would; `?` where that cannot be told.
    pub new: String,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentKey {
    /// Session (run) id.
    pub session: String,
    /// Who launched it.
    pub user: String,
}

impl ReplayReport {
    pub(super) fn new(policy_hash: &str, tally: Tally) -> Self {
        Self {
            policy_hash: policy_hash.to_owned(),
            first: tally.times.map(|(first, _)| first),
            last: tally.times.map(|(_, last)| last),
            requests: tally.counts.total(),
            counts: tally.counts,
            others: tally.others,
            unreadable: tally.unreadable.count,
            unreadable_lines: tally.unreadable.first,
            hosts: groups(tally.hosts, |(host, _)| HostKey { host }),
            rules: groups(tally.rules, |(old, new)| RuleKey { old, new }),
            agents: groups(tally.agents, |(session, user)| AgentKey { session, user }),
        }
    }

    /// Whether somebody would meet a refusal or a question that was not there before.
    pub fn hurts(&self) -> bool {
        self.counts.blocked > 0 || self.counts.asked > 0
    }
}

fn groups<K>(table: Table, name: impl Fn((String, String)) -> K) -> Groups<K> {
    let mut groups: Vec<_> = table.groups.into_iter().collect();
    let order = |counts: &Counts| {
        use std::cmp::Reverse;
        (
            Reverse(counts.blocked),
            Reverse(counts.asked),
            Reverse(counts.allowed),
            Reverse(counts.untold),
        )
    };
    groups.sort_by(|(a, x), (b, y)| (order(&x.counts), a).cmp(&(order(&y.counts), b)));
    let named = |(key, group)| Keyed {
        key: name(key),
        group,
    };
    Groups {
        groups: groups.into_iter().map(named).collect(),
        others: table.others,
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = f.width().unwrap_or(WIDTH).max(40);
        let Counts {
            blocked,
            asked,
            allowed,
            untold,
            unchanged,
        } = self.counts;
        match (self.first, self.last) {
            (Some(first), Some(last)) => writeln!(f, "{} requests, {first} to {last}", self.requests)?,
            _ => writeln!(f, "no requests")?,
        }
        writeln!(f, "{blocked:>10} would newly be blocked")?;
        writeln!(f, "{asked:>10} would newly be asked for")?;
        writeln!(f, "{allowed:>10} would newly be allowed")?;
        writeln!(f, "{unchanged:>10} unchanged")?;
        writeln!(f, "{untold:>10} cannot be told")?;
        if self.others > 0 {
            writeln!(
                f,
                "{:>10} records of something that no policy decided",
                self.others
            )?;
        }
        if self.unreadable > 0 {
            writeln!(f, "{:>10} lines cannot be read:", self.unreadable)?;
            for line in &self.unreadable_lines {
                writeln!(
                    f,
                    "{}",
                    cut(&format!("           {} ({})", line.line, line.why), width)
                )?;
            }
        }
        section(f, width, "HOST", &self.hosts, |key| shown(&key.host))?;
        section(f, width, "RULE", &self.rules, |key| {
            format!("{} -> {}", named(&key.old), named(&key.new))
        })?;
        section(f, width, "AGENT", &self.agents, |key| {
            format!("{} of {}", named(&key.session), named(&key.user))
        })?;
        examples(f, width, &self.rules)
    }
}

fn named(text: &str) -> String {
    match text {
        "" => "nobody".to_owned(),
        text => shown(text),
    }
}

fn section<K>(
    f: &mut fmt::Formatter<'_>,
    width: usize,
    title: &str,
    groups: &Groups<K>,
    name: impl Fn(&K) -> String,
) -> fmt::Result {
    if groups.groups.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n   BLOCKED     ASKED   ALLOWED    UNTOLD  {title}")?;
    let row = |counts: &Counts, name: &str| {
        let Counts {
            blocked,
            asked,
            allowed,
            untold,
            ..
        } = counts;
        cut(
            &format!("{blocked:>10}{asked:>10}{allowed:>10}{untold:>10}  {name}"),
            width,
        )
    };
    for keyed in groups.groups.iter().take(ROWS) {
        writeln!(f, "{}", row(&keyed.group.counts, &name(&keyed.key)))?;
    }
    if groups.groups.len() > ROWS {
        writeln!(
            f,
            "{:40}  and {} more, see --json",
            "",
            groups.groups.len() - ROWS
        )?;
    }
    if groups.others.total() > 0 {
        writeln!(f, "{}", row(&groups.others, "others, too many to tell apart"))?;
    }
    Ok(())
}

/// By rule, which is what a reader of a policy goes by.
fn examples(f: &mut fmt::Formatter<'_>, width: usize, rules: &Groups<RuleKey>) -> fmt::Result {
    let mut told = rules
        .groups
        .iter()
        .take(ROWS)
        .flat_map(|keyed| &keyed.group.examples)
        .peekable();
    if told.peek().is_some() {
        writeln!(f, "\nEXAMPLES")?;
    }
    told.try_for_each(|example| example_lines(f, width, example))
}

fn example_lines(f: &mut fmt::Formatter<'_>, width: usize, example: &Example) -> fmt::Result {
    let new = example.new.map_or("cannot be told", |new| new.as_str());
    let head = format!("{}  {}", example.at, shown(&example.request));
    writeln!(f, "{}", cut(&head, width))?;
    writeln!(f, "  record {}", shown(&example.id))?;
    let old = format!("  {}: {}", example.old.as_str(), shown(&example.old_reason));
    writeln!(f, "{}", cut(&old, width))?;
    writeln!(
        f,
        "{}",
        cut(&format!("  {new}: {}", shown(&example.new_reason)), width)
    )
}

/// Cuts a line to so many columns, with a mark.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(columns.saturating_sub(1)).collect();
    out.push('…');
    out
}
