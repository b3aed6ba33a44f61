//! Putting versions in force: everything compiled first, then all of it at once, or nothing.
use super::store::digest;
use super::tale::Tale;
use super::{InForce, Inner, RenewError, Standing, StandingError, layers};
use crate::control::types::{PolicyEdition, PolicyKey, PolicyVersion};
use crate::session::layers::Layers;
use crate::session::renew::CannotGoOn;
use sallyport_policy::{Layer, PolicyText, Problem};
use std::collections::BTreeMap;

/// Most problems that are kept of one policy.
const PROBLEMS: usize = 100;
/// Most sessions that are named where they could not go on.
const NAMED: usize = 5;

/// What is wrong, by policy.
pub(super) type Faults = BTreeMap<PolicyKey, Vec<Problem>>;

/// What is to become the newest version of a policy.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) key: PolicyKey,
    /// Its files; none withdraws the policy.
    pub(super) texts: Option<Vec<PolicyText>>,
    pub(super) author: String,
    pub(super) note: String,
    /// Digest of what lies on disk.
    pub(super) seen: String,
}

/// Why candidates are not in force.
#[derive(Debug)]
pub(super) enum NotInForce {
    /// Something is wrong with these.
    Faulty(Faults),
    /// Something else went wrong.
    Error(StandingError),
}

impl From<NotInForce> for StandingError {
    fn from(why: NotInForce) -> Self {
        match why {
            NotInForce::Faulty(faults) => Self::Broken(faults.into_values().flatten().collect()),
            NotInForce::Error(error) => error,
        }
    }
}

impl Standing {
    /// All candidates, or none.
    pub(super) fn put_in_force(
        &self,
        inner: &mut Inner,
        set: &[Candidate],
        tale: &mut Tale,
    ) -> Result<(), NotInForce> {
        let mut layers = layers(&inner.entries);
        for one in set {
            match &one.texts {
                Some(texts) => layers.put(one.key.clone(), InForce::Texts(texts.as_slice().into())),
                None => layers.remove(&one.key),
            }
        }
        let faults = faults_alone(&layers, set);
        if !faults.is_empty() {
            return Err(NotInForce::Faulty(faults));
        }
        let now = jiff::Timestamp::now();
        let new: Vec<_> = set
            .iter()
            .map(|one| {
                let number = inner.entries.get(&one.key).map_or(1, super::Entry::next_number);
                (one.key.clone(), edition(one, number, now), one.seen.clone())
            })
            .collect();
        let renewed = self.sessions.renew(layers, || self.store.add(&new));
        let changed = renewed.map_err(|error| match error {
            RenewError::CannotGoOn(sessions) => NotInForce::Faulty(faults_of_sessions(&sessions, set)),
            RenewError::State(error) => NotInForce::Error(error.into()),
            RenewError::Failed(why) => NotInForce::Error(StandingError::Failed(why)),
        })?;
        tale.changed.extend(changed);
        for (key, edition, seen) in new {
            tale.taken(&key, &edition.version);
            let entry = inner.entries.entry(key).or_default();
            *entry = super::Entry {
                newest: Some(edition),
                seen,
                ..super::Entry::default()
            };
        }
        Ok(())
    }
}

fn edition(one: &Candidate, number: u64, at: jiff::Timestamp) -> PolicyEdition {
    let texts = one.texts.clone().unwrap_or_default();
    PolicyEdition {
        version: PolicyVersion {
            number,
            hash: digest(&texts),
            author: one.author.clone(),
            at,
            note: one.note.clone(),
            withdrawn: one.texts.is_none(),
        },
        texts,
    }
}

/// What is wrong without looking at any session: with the candidates, and with those below them.
fn faults_alone(layers: &Layers, set: &[Candidate]) -> Faults {
    let changed = |layer| set.iter().any(|one| one.key.layer() == layer);
    let mut faults = Faults::new();
    for key in layers.keys() {
        let below =
            changed(Layer::Organisation) || (changed(Layer::Team) && key.layer() == Layer::Repository);
        let own = set.iter().any(|one| one.key == *key);
        if !own && !below {
            continue;
        }
        let problems = layers.problems_of(key);
        if problems.is_empty() {
            continue;
        }
        // One that was good before is broken by what stands above it.
        let blamed = set.iter().filter(|one| match own {
            true => one.key == *key,
            false => one.key.layer() < key.layer(),
        });
        for one in blamed {
            add(&mut faults, &one.key, &problems);
        }
    }
    faults
}

fn faults_of_sessions(sessions: &[CannotGoOn], set: &[Candidate]) -> Faults {
    let mut faults = Faults::new();
    for (number, session) in sessions.iter().enumerate() {
        for one in set.iter().filter(|one| one.key.binds(&session.who)) {
            if number < NAMED {
                let file = super::place::file_of(&one.key);
                let why = session
                    .problems
                    .first()
                    .map(|first| format!(": {}", first.message));
                let message = format!(
                    "run `{}` could not go on under it{}",
                    session.id,
                    why.unwrap_or_default()
                );
                let fault = super::place::problem(&file, &message, None);
                add(&mut faults, &one.key, &[fault]);
            }
            add(&mut faults, &one.key, &session.problems);
        }
    }
    faults
}

fn add(faults: &mut Faults, key: &PolicyKey, problems: &[Problem]) {
    let known = faults.entry(key.clone()).or_default();
    for problem in problems {
        if known.len() < PROBLEMS && !known.contains(problem) {
            known.push(problem.clone());
        }
    }
}
