//! What a policy would have made of recorded traffic: what it would newly block, ask for or allow.
mod report;
mod tally;

use crate::again::{Again, Answer, Told};
use crate::recorded::{Line, Outcome, Recorded};
use crate::{Policy, Who};
pub use report::ReplayReport;
use std::collections::HashMap;
use std::sync::Arc;
pub use tally::{Change, Example, Tally};
use tally::{Keys, Unreadable};

/// Whose each session is, as far as the log has told so far. A cheap copy.
#[derive(Debug, Clone, Default)]
pub struct People(Arc<HashMap<String, Arc<Who>>>);

impl People {
    /// What every line of a log that tells whose a session is has in it, and no other.
    pub const MARK: &'static str = r#""kind":"session""#;

    /// Takes note of whose a session is, if this line tells.
    pub fn meet(&mut self, line: &str) {
        if let Ok(Line::Session { session, who }) = Line::read(line) {
            self.learn(&session, *who);
        }
    }

    /// Takes note of whose a session is.
    pub fn learn(&mut self, session: &str, who: Who) {
        Arc::make_mut(&mut self.0).insert(session.to_owned(), Arc::new(who));
    }

    /// Whose a session is.
    pub fn of(&self, session: &str) -> Option<&Who> {
        self.0.get(session).map(Arc::as_ref)
    }
}

/// Decides recorded requests again by one policy.
#[derive(Debug)]
pub struct Replay {
    again: Again,
    policy_hash: String,
    examples: usize,
}

impl Replay {
    /// By `policy`; keeps up to `examples` requests of each group.
    pub fn new(policy: Policy, examples: usize) -> Self {
        Self {
            policy_hash: policy.hash().to_owned(),
            again: Again::new(policy),
            examples,
        }
    }

    /// An empty sum for [`Tally::add`].
    pub fn tally(&self) -> Tally {
        Tally::new(self.examples)
    }

    /// Decides the records of some lines of the log. `people` is what the log told before them.
    pub fn lines(&self, lines: &str, people: &People) -> Tally {
        let mut tally = self.tally();
        let mut people = people.clone();
        for line in lines.lines() {
            match Line::read(line) {
                Ok(Line::Request(recorded)) => self.request(&recorded, &people, &mut tally),
                Ok(Line::Session { session, who }) => people.learn(&session, *who),
                Ok(Line::Other) => tally.others += 1,
                Err(fault) => tally.unreadable.push(Unreadable::new(line, &fault)),
            }
        }
        tally
    }

    /// The sum of everything, for people and programs.
    pub fn report(&self, tally: Tally) -> ReplayReport {
        ReplayReport::new(&self.policy_hash, tally)
    }

    fn request(&self, recorded: &Recorded<'_>, people: &People, tally: &mut Tally) {
        let answer = self.again.decide(recorded, people.of(&recorded.session));
        tally.see(recorded.at);
        let (change, told) = match answer {
            Answer::Told(told) => (change(recorded.outcome, told.outcome), told),
            Answer::Untold(why) => {
                let rule = "?".to_owned();
                let told = Told {
                    outcome: recorded.outcome,
                    rule,
                    text: why,
                };
                (Change::Untold, told)
            }
        };
        if change == Change::None {
            tally.counts.unchanged += 1;
            return;
        }
        let host = recorded.destination.host.to_string();
        let keys = Keys {
            host: &host,
            old: &recorded.rule,
            new: &told.rule,
            session: &recorded.session,
            user: &recorded.user,
        };
        tally.count(change, keys, || Example {
            change,
            id: recorded.id.to_string(),
            at: recorded.at,
            request: recorded.subject(),
            old: recorded.outcome,
            old_reason: recorded.reason.to_string(),
            new: (change != Change::Untold).then_some(told.outcome),
            new_reason: told.text.clone(),
        });
    }
}

/// What it means for whoever asked.
fn change(old: Outcome, new: Outcome) -> Change {
    let passes = |outcome| matches!(outcome, Outcome::Allowed | Outcome::Observed);
    match (old, new) {
        (old, new) if old == new || (passes(old) && passes(new)) => Change::None,
        (_, new) if passes(new) => Change::Allowed,
        (_, Outcome::Asked) => Change::Asked,
        _ => Change::Blocked,
    }
}
