//! Looking at the files: what changed becomes a version, or is said to be broken.
use super::disk::{Found, GONE, Reading};
use super::force::{Candidate, Faults, NotInForce};
use super::place::{file_of, problem};
use super::tale::Tale;
use super::{Inner, Standing, StandingError, layers};
use crate::control::types::{PolicyKey, StandingPolicies};
use crate::metrics::Outcome;
use crate::session::renew::RenewError;
use std::sync::Arc;

/// Why the files are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The gateway starts.
    Start,
    /// Somebody asked.
    Asked,
    /// Time passed.
    Poll,
}

/// A file that is not what is in force.
struct News {
    candidate: Candidate,
    /// Why it cannot even be read.
    fault: Option<sallyport_policy::Problem>,
}

impl Standing {
    /// The first look, before anything is served.
    pub(super) async fn begin(self: &Arc<Self>) -> Result<(), StandingError> {
        self.change(|own, inner, tale| own.look(inner, Cause::Start, tale))
            .await
    }

    /// Looks at the files because somebody asked; what is broken is said again.
    pub async fn reload(self: &Arc<Self>) -> Result<StandingPolicies, StandingError> {
        self.change(|own, inner, tale| own.look(inner, Cause::Asked, tale))
            .await?;
        Ok(self.view())
    }

    /// Looks at the files where their metadata changed since the last look. Call it every second or so.
    pub async fn poll(self: &Arc<Self>) -> Result<(), StandingError> {
        self.change(|own, inner, tale| own.look(inner, Cause::Poll, tale))
            .await
    }

    fn look(&self, inner: &mut Inner, cause: Cause, tale: &mut Tale) -> Result<(), StandingError> {
        let generation = self.sessions.generation();
        let glance = self.disk.glance();
        let broken = inner.entries.values().any(|entry| !entry.broken.is_empty());
        let looked = inner.looked.as_ref().zip(glance.as_ref().ok());
        let same = looked.is_some_and(|((before, settled), glance)| *settled && before == glance);
        // What is broken for a session's sake may fit when that session is gone.
        if cause == Cause::Poll && same && (!broken || generation == inner.generation) {
            return Ok(());
        }
        let looked_at = glance.ok().map(|glance| {
            let settled = glance.is_settled();
            (glance, settled)
        });
        let reading = match self.disk.read() {
            Ok(reading) => reading,
            Err(error) if cause == Cause::Start => return Err(error.into()),
            Err(error) => {
                folder_is_unreadable(inner, &error, cause, tale);
                return Ok(());
            }
        };
        inner.looked = looked_at;
        inner.generation = generation;
        let unusable = inner.entries.values().any(|entry| entry.unusable);
        let news = self.news(inner, reading, cause, tale)?;
        self.take(inner, news, cause, tale)?;
        self.close_unusable(inner, cause, unusable, tale)?;
        if cause == Cause::Asked && tale.outcome.is_none() {
            tale.outcome = Some(Outcome::Unchanged);
        }
        Ok(())
    }

    /// Compares what lies on disk with what is in force and with what was seen; what differs from both is news.
    fn news(
        &self,
        inner: &mut Inner,
        reading: Reading,
        cause: Cause,
        tale: &mut Tale,
    ) -> Result<Vec<News>, StandingError> {
        inner.strays = reading.strays;
        let mut found = reading.found;
        let gone: Vec<PolicyKey> = inner
            .entries
            .keys()
            .filter(|key| !found.contains_key(key))
            .cloned()
            .collect();
        for key in gone {
            self.file_is_gone(inner, &key, cause, tale);
        }
        let mut news = Vec::new();
        while let Some((key, found)) = found.pop_first() {
            let entry = inner.entries.entry(key.clone()).or_default();
            if entry
                .in_force()
                .is_some_and(|edition| edition.version.hash == found.digest)
            {
                if entry.seen != found.digest {
                    self.store.saw(&key, &found.digest)?;
                    entry.seen = found.digest;
                }
                entry.broken.clear();
                entry.differs = false;
            } else if entry.newest.is_some() && entry.seen == found.digest {
                entry.broken.clear();
                entry.differs = true;
            } else {
                news.push(as_news(key, found));
            }
        }
        Ok(news)
    }

    /// A policy whose file is gone goes on: whoever means to end it says so.
    fn file_is_gone(&self, inner: &mut Inner, key: &PolicyKey, cause: Cause, tale: &mut Tale) {
        let Some(entry) = inner.entries.get_mut(key) else {
            return;
        };
        if entry.in_force().is_none() {
            entry.broken.clear();
            entry.unusable = false;
            entry.differs = false;
            if entry.newest.is_none() {
                inner.entries.remove(key);
            }
            return;
        }
        if entry.seen == GONE {
            entry.differs = true;
            return;
        }
        let hint = "put it back, or end the policy with `sallyport policy withdraw`";
        let problems = vec![problem(
            &file_of(key),
            "the file is gone, and the policy stays in force",
            Some(hint),
        )];
        if entry.broken != problems || cause != Cause::Poll {
            tale.refused(key, "unknown", "", &problems);
        }
        entry.broken = problems;
        GONE.clone_into(&mut entry.broken_digest);
    }

    /// Takes all news at once; where that cannot be, those that were not known as broken, at once.
    fn take(
        &self,
        inner: &mut Inner,
        news: Vec<News>,
        cause: Cause,
        tale: &mut Tale,
    ) -> Result<(), StandingError> {
        if news.is_empty() {
            return Ok(());
        }
        let mut faults = match self.attempt(inner, &news.iter().collect::<Vec<_>>(), tale) {
            Ok(()) => return Ok(()),
            Err(NotInForce::Error(error)) => return Err(error),
            Err(NotInForce::Faulty(faults)) => faults,
        };
        let is_fresh = |one: &&News| {
            let entry = inner.entries.get(&one.candidate.key);
            entry.is_none_or(|entry| entry.broken_digest != one.candidate.seen)
        };
        let fresh: Vec<&News> = news.iter().filter(is_fresh).collect();
        if !fresh.is_empty() && fresh.len() < news.len() {
            match self.attempt(inner, &fresh, tale) {
                Ok(()) => {
                    let taken =
                        |one: &News| fresh.iter().any(|fresh| fresh.candidate.key == one.candidate.key);
                    let rest: Vec<&News> = news.iter().filter(|one| !taken(one)).collect();
                    say_broken(inner, &rest, &faults, cause, tale);
                    return Ok(());
                }
                Err(NotInForce::Error(error)) => return Err(error),
                Err(NotInForce::Faulty(more)) => faults.extend(more),
            }
        }
        say_broken(inner, &news.iter().collect::<Vec<_>>(), &faults, cause, tale);
        Ok(())
    }

    fn attempt(&self, inner: &mut Inner, news: &[&News], tale: &mut Tale) -> Result<(), NotInForce> {
        let unreadable: Faults = news
            .iter()
            .filter_map(|one| Some((one.candidate.key.clone(), vec![one.fault.clone()?])))
            .collect();
        if !unreadable.is_empty() {
            return Err(NotInForce::Faulty(unreadable));
        }
        let set: Vec<Candidate> = news.iter().map(|one| one.candidate.clone()).collect();
        self.put_in_force(inner, &set, tale)
    }

    /// At the start: a file that cannot be used, and no version of it, closes whom it would bind; later looks mend that.
    fn close_unusable(
        &self,
        inner: &mut Inner,
        cause: Cause,
        were: bool,
        tale: &mut Tale,
    ) -> Result<(), StandingError> {
        let mut are = were;
        for (key, entry) in &mut inner.entries {
            if cause == Cause::Start && entry.in_force().is_none() && !entry.broken.is_empty() {
                tracing::error!(policy = %key, "no version of it is kept: nothing passes for the runs that it would bind");
                entry.unusable = true;
                are = true;
            }
        }
        if !are {
            return Ok(());
        }
        match self.sessions.renew(layers(&inner.entries), || Ok(())) {
            Ok(changed) => tale.changed.extend(changed),
            Err(RenewError::CannotGoOn(sessions)) => {
                let ids: Vec<_> = sessions.into_iter().map(|session| session.id).collect();
                return Err(StandingError::Failed(format!(
                    "these sessions cannot go on: {}",
                    ids.join(", ")
                )));
            }
            Err(RenewError::State(error)) => return Err(error.into()),
            Err(RenewError::Failed(why)) => return Err(StandingError::Failed(why)),
        }
        Ok(())
    }
}

/// What is in force stays so, and each policy says that its file cannot be looked at.
fn folder_is_unreadable(inner: &mut Inner, error: &std::io::Error, cause: Cause, tale: &mut Tale) {
    inner.looked = None;
    for (key, entry) in inner
        .entries
        .iter_mut()
        .filter(|(_, entry)| entry.in_force().is_some())
    {
        let message = format!("the folder of policies cannot be read: {error}");
        let problems = vec![problem(&file_of(key), &message, None)];
        if entry.broken != problems || cause != Cause::Poll {
            tale.refused(key, "unknown", "", &problems);
        }
        entry.broken = problems;
    }
}

fn as_news(key: PolicyKey, found: Found) -> News {
    let (texts, fault) = match found.texts {
        Ok(texts) => (Some(texts), None),
        Err(problem) => (None, Some(problem)),
    };
    News {
        candidate: Candidate {
            key,
            texts,
            author: found.author,
            note: "the file changed".to_owned(),
            seen: found.digest,
        },
        fault,
    }
}

/// Notes what is broken; says so where it is news, or where somebody asked.
fn say_broken(inner: &mut Inner, news: &[&News], faults: &Faults, cause: Cause, tale: &mut Tale) {
    let faulty: Vec<String> = faults.keys().map(|key| format!("`{key}`")).collect();
    for one in news {
        let candidate = &one.candidate;
        let problems = match faults.get(&candidate.key) {
            Some(problems) => problems.clone(),
            None => {
                let message = format!(
                    "it is good, but {} changed with it and cannot be used",
                    faulty.join(", ")
                );
                let hint = "what changes together is taken together";
                vec![problem(&file_of(&candidate.key), &message, Some(hint))]
            }
        };
        let entry = inner.entries.entry(candidate.key.clone()).or_default();
        if entry.broken != problems || entry.broken_digest != candidate.seen || cause != Cause::Poll {
            let hash = candidate.texts.as_ref().map_or("", |_| &candidate.seen);
            tale.refused(&candidate.key, &candidate.author, hash, &problems);
        }
        entry.broken = problems;
        entry.broken_digest.clone_from(&candidate.seen);
        entry.differs = false;
    }
}
