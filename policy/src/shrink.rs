//! What nobody used of a policy: rules, hosts, methods, paths and credentials that recorded traffic never needed.
mod parts;
mod report;

use crate::again::settled;
use crate::document::Effect;
use crate::recorded::{Line, Recorded, Shape};
use crate::replay::People;
use crate::rule::Fit;
use crate::{HttpRequest, Moment, Policy, PolicyText, Problem, Request, Who};
use parts::{Kind, Parts, parts};
pub use report::{Quiet, ShrinkReport, Suggestion};
use std::collections::HashMap;

/// Holds a policy against recorded traffic.
#[derive(Debug)]
pub struct Shrink {
    /// Rules that match at least what they matched.
    known: Policy,
    /// The same where the log does not tell whose a session is.
    stranger: Policy,
    parts: Parts,
    since: jiff::Timestamp,
}

/// A part of a policy: of which rule, credential or set; which kind; which of that kind.
type Place = (usize, Kind, usize);

/// When something was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    /// How often since the time that is looked at.
    count: u64,
    /// The last time before that.
    before: Option<jiff::Timestamp>,
}

/// What was used, as far as it is known. Those of pieces of a log are added in any order. As large as the policy at most.
#[derive(Debug, Default)]
pub struct Usage {
    used: HashMap<Place, Use>,
    /// Requests since the time that is looked at.
    records: u64,
    first: Option<jiff::Timestamp>,
    unreadable: u64,
}

impl Usage {
    /// Adds what was used in another piece of the log.
    pub fn add(&mut self, other: Self) {
        self.records += other.records;
        self.unreadable += other.unreadable;
        self.first = [self.first, other.first].into_iter().flatten().min();
        for (place, more) in other.used {
            let known = self.used.entry(place).or_default();
            known.count += more.count;
            known.before = known.before.max(more.before);
        }
    }
}

impl Shrink {
    /// The policy `texts[0]` with what it includes. Traffic of before `since` only tells when something was used last.
    pub fn new(texts: &[PolicyText], since: jiff::Timestamp) -> Result<Self, Vec<Problem>> {
        let policy = Policy::compile(texts)?;
        Ok(Self {
            known: settled(&policy, true),
            stranger: settled(&policy, false),
            parts: parts(texts),
            since,
        })
    }

    /// Looks at some lines of a log. `people` is what the log told before them.
    pub fn lines(&self, lines: &str, people: &People) -> Usage {
        let mut usage = Usage::default();
        let mut people = people.clone();
        for line in lines.lines() {
            match Line::read(line) {
                Ok(Line::Request(recorded)) => {
                    self.request(&recorded, people.of(&recorded.session), &mut usage)
                }
                Ok(Line::Session { session, who }) => people.learn(&session, *who),
                Ok(Line::Other) => {}
                Err(_) => usage.unreadable += 1,
            }
        }
        usage
    }

    /// What may go.
    pub fn report(&self, usage: &Usage) -> ShrinkReport {
        ShrinkReport::new(&self.parts, usage, self.since)
    }

    fn request(&self, recorded: &Recorded<'_>, who: Option<&Who>, usage: &mut Usage) {
        let recent = recorded.at >= self.since;
        if recent {
            usage.records += 1;
            usage.first = Some(usage.first.map_or(recorded.at, |first| first.min(recorded.at)));
        }
        let stranger = Who {
            run: recorded.session.to_string(),
            user: recorded.user.to_string(),
            ..Who::default()
        };
        let (policy, who) = match who {
            Some(who) => (&self.known, who),
            None => (&self.stranger, &stranger),
        };
        let mut mark = |place: Place| {
            let known = usage.used.entry(place).or_default();
            match recent {
                true => known.count += 1,
                false => known.before = known.before.max(Some(recorded.at)),
            }
        };
        for number in policy.index.candidates(&recorded.destination.host) {
            let number = number as usize;
            let Some(rule) = policy.rules.get(number) else {
                continue;
            };
            let fits = requests(recorded)
                .iter()
                .any(|request| !matches!(rule.fit(request, who, recorded.at), Fit::Miss(_)));
            if fits {
                self.parts.used(number, recorded, &mut mark);
            }
        }
        for name in &recorded.credentials {
            self.parts.credential(name, &mut mark);
        }
    }
}

/// What it may have been: what records do not tell may have been either.
fn requests(recorded: &Recorded<'_>) -> Vec<Request> {
    let request = |moment| Request {
        destination: recorded.destination.clone(),
        moment,
    };
    match &recorded.shape {
        Shape::Postgres(login) => return vec![request(Moment::Postgres(login.clone()))],
        Shape::Ssh(ssh) => return vec![request(Moment::Ssh(ssh.clone()))],
        _ => {}
    }
    let Shape::Http { method, path, tls } = &recorded.shape else {
        return vec![request(Moment::Connect), request(Moment::Opaque)];
    };
    let Some(path) = path else {
        return vec![request(Moment::Connect)];
    };
    let mut found = Vec::new();
    for tls in tls.map_or(vec![true, false], |tls| vec![tls]) {
        let queries: &[Option<&str>] = match path.as_str().ends_with("/info/refs") {
            true => &[
                None,
                Some("service=git-upload-pack"),
                Some("service=git-receive-pack"),
            ],
            false => &[None],
        };
        for query in queries {
            let query = query.map(str::to_owned);
            let http = HttpRequest::new(&**method, path.clone(), query, tls);
            found.push(request(Moment::Http(http)));
        }
    }
    found
}

/// Whether a rule only ever takes away: it protects also where nothing met it.
fn protects(effect: Effect) -> bool {
    effect != Effect::Allow
}
