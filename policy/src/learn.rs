//! A policy from what a run did: the smallest tidy one that would have allowed it, with the evidence.
mod ids;
mod paths;
mod proposal;
mod rules;

use crate::again::{Again, Answer};
use crate::path_pattern::{PathPattern, Slashes};
use crate::recorded::{Line, Outcome, Recorded, Shape};
use crate::replay::People;
use crate::{Host, Policy, classify};
pub use proposal::Proposal;
use std::collections::{BTreeMap, HashSet};

/// Most different requests that are looked at; what comes after them is counted together.
const KEY_LIMIT: usize = 50_000;

/// Looks at what a run did.
#[derive(Debug)]
pub struct Learner {
    /// What is allowed already, and what is never to be.
    base: Option<Again>,
    taken: HashSet<String>,
    denied: bool,
}

/// What is passed, as rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Http { tls: bool },
    Tls,
    Stream,
}

/// Requests that one rule must allow alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: Host,
    port: u16,
    kind: Kind,
    method: String,
    /// With ids taken out.
    path: String,
}

/// What stands for such requests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Evidence {
    count: u64,
    first: jiff::Timestamp,
    last: jiff::Timestamp,
    /// The first record.
    id: String,
    /// The request of that one, as tests of policies write it.
    sample: String,
}

impl Evidence {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.last = self.last.max(other.last);
        if (other.first, &other.id) < (self.first, &self.id) {
            (self.first, self.id, self.sample) = (other.first, other.id.clone(), other.sample.clone());
        }
    }
}

/// What was done, as far as it is known. Those of pieces of a log are added in any order.
#[derive(Debug, Default)]
pub struct Learned {
    wanted: BTreeMap<Key, Evidence>,
    /// What is not proposed, by request and reason.
    left_out: BTreeMap<(String, String), Evidence>,
    /// Requests that the base allows already.
    allowed: u64,
    /// Connections on which nothing was asked, and what was stopped by a bound or its address.
    nothing: u64,
    /// What found no room.
    others: u64,
    unreadable: u64,
}

impl Learned {
    /// Adds what was done in another piece of the log.
    pub fn add(&mut self, other: Self) {
        for (key, evidence) in other.wanted {
            self.others += add(&mut self.wanted, key, evidence);
        }
        for (key, evidence) in other.left_out {
            self.others += add(&mut self.left_out, key, evidence);
        }
        self.allowed += other.allowed;
        self.nothing += other.nothing;
        self.others += other.others;
        self.unreadable += other.unreadable;
    }
}

/// How many requests found no room.
fn add<K: Ord>(table: &mut BTreeMap<K, Evidence>, key: K, evidence: Evidence) -> u64 {
    if let Some(known) = table.get_mut(&key) {
        known.add(&evidence);
        return 0;
    }
    if table.len() >= KEY_LIMIT {
        return evidence.count;
    }
    table.insert(key, evidence);
    0
}

impl Learner {
    /// Beside `base`, if there is one: what it allows is not proposed again, and what a rule of it refuses is not proposed at all.
    /// With `denied`, what was refused counts as wanted too.
    pub fn new(base: Option<Policy>, denied: bool) -> Self {
        let ids = base.iter().flat_map(|policy| policy.rules.iter());
        Self {
            taken: ids.map(|rule| rule.id.clone()).collect(),
            base: base.map(Again::new),
            denied,
        }
    }

    /// Looks at some lines of a log. `people` is what the log told before them.
    pub fn lines(&self, lines: &str, people: &People) -> Learned {
        let mut learned = Learned::default();
        let mut people = people.clone();
        for line in lines.lines() {
            match Line::read(line) {
                Ok(Line::Request(recorded)) => self.request(&recorded, &people, &mut learned),
                Ok(Line::Session { session, who }) => people.learn(&session, *who),
                Ok(Line::Other) => {}
                Err(_) => learned.unreadable += 1,
            }
        }
        learned
    }

    /// The policy, and what is not in it.
    pub fn propose(&self, learned: &Learned, name: &str) -> Proposal {
        Proposal::new(learned, name, &self.taken)
    }

    fn request(&self, recorded: &Recorded<'_>, people: &People, learned: &mut Learned) {
        let refused = matches!(recorded.outcome, Outcome::Asked | Outcome::Denied);
        if refused && !self.denied {
            return;
        }
        if recorded.stopped || matches!(recorded.shape, Shape::Connect) {
            learned.nothing += 1;
            return;
        }
        let path = match &recorded.shape {
            Shape::Http { path: Some(path), .. } => path.as_str(),
            _ => "",
        };
        let evidence = Evidence {
            count: 1,
            first: recorded.at,
            last: recorded.at,
            id: recorded.id.to_string(),
            sample: match recorded.shape {
                Shape::Http { .. } | Shape::Postgres(_) | Shape::Ssh(_) => recorded.subject(),
                Shape::Stream => format!("opaque {}", recorded.destination),
                Shape::Tls | Shape::Connect => format!("connect {}", recorded.destination),
            },
        };
        let why = match self.verdict(recorded, people) {
            Verdict::Allowed => {
                learned.allowed += 1;
                return;
            }
            Verdict::LeftOut(why) => Some(why),
            Verdict::Wanted => unfit(recorded),
        };
        learned.others += match (why, key(recorded, path)) {
            (None, Some(key)) => add(&mut learned.wanted, key, evidence),
            (why, _) => {
                let why = why.unwrap_or_else(|| "nothing is known of what was asked".to_owned());
                add(
                    &mut learned.left_out,
                    (generalised(recorded, path), why),
                    evidence,
                )
            }
        };
    }

    fn verdict(&self, recorded: &Recorded<'_>, people: &People) -> Verdict {
        let Some(base) = &self.base else {
            return Verdict::Wanted;
        };
        match base.decide(recorded, people.of(&recorded.session)) {
            Answer::Told(told) if told.outcome == Outcome::Allowed => Verdict::Allowed,
            Answer::Told(told) if told.rule == "default" => Verdict::Wanted,
            Answer::Told(told) => Verdict::LeftOut(match told.outcome {
                Outcome::Asked => format!("rule `{}` has a person asked", told.rule),
                Outcome::Observed => format!("rule `{}` refuses it", told.rule),
                _ => format!("rule `{}` denies it", told.rule),
            }),
            Answer::Untold(why) => {
                Verdict::LeftOut(format!("what the base says of it cannot be told: {why}"))
            }
        }
    }
}

enum Verdict {
    Allowed,
    Wanted,
    LeftOut(String),
}

/// Why no rule could or should allow it.
fn unfit(recorded: &Recorded<'_>) -> Option<String> {
    if let Host::Address(address) = recorded.destination.host
        && let Some(class) = classify(address)
    {
        return Some(format!(
            "`{address}` is a {class} address; whoever means it writes a rule with `private: true`"
        ));
    }
    match &recorded.shape {
        Shape::Http { path: None, .. } => Some("the record has only the beginning of its path".to_owned()),
        Shape::Http { tls: None, .. } => Some("the record does not tell whether TLS was spoken".to_owned()),
        Shape::Http { path: Some(path), .. } => path
            .ambiguity()
            .map(|reason| format!("its path can be read in more than one way: {reason}")),
        Shape::Postgres(_) => Some("rules with `protocol: postgres` are written by hand".to_owned()),
        Shape::Ssh(ssh) => Some(match ssh.git {
            Some(_) => {
                "rules with `protocol: git` for ssh, and the host's `known-hosts`, are written by hand"
                    .to_owned()
            }
            None => {
                "rules with `protocol: ssh`, and the host's `known-hosts`, are written by hand".to_owned()
            }
        }),
        Shape::Connect | Shape::Stream | Shape::Tls => None,
    }
}

fn key(recorded: &Recorded<'_>, path: &str) -> Option<Key> {
    let (kind, method) = match &recorded.shape {
        Shape::Http { method, tls, .. } => (Kind::Http { tls: (*tls)? }, method.to_string()),
        Shape::Tls => (Kind::Tls, String::new()),
        Shape::Stream => (Kind::Stream, String::new()),
        Shape::Connect | Shape::Postgres(_) | Shape::Ssh(_) => return None,
    };
    let path = ids::without(path);
    // What is no pattern, or means another path than it says, cannot stand in a rule.
    (path.is_empty() || PathPattern::parse(&path, Slashes::Plain).is_ok()).then(|| Key {
        host: recorded.destination.host.clone(),
        port: recorded.destination.port,
        kind,
        method,
        path,
    })
}

/// What was asked for, so that many of its kind are one.
fn generalised(recorded: &Recorded<'_>, path: &str) -> String {
    let subject = recorded.subject();
    match subject.strip_suffix(path) {
        Some(before) if !path.is_empty() => format!("{before}{}", ids::without(path)),
        _ => subject,
    }
}
