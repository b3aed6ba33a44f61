//! Changes by call: publish, roll back, withdraw. The file on disk is written too, so that disk and force agree.
use super::disk::GONE;
use super::force::{Candidate, NotInForce};
use super::place::{placed, problem};
use super::store::digest;
use super::tale::Tale;
use super::{Inner, Standing, StandingError};
use crate::control::types::{PolicyKey, PolicyVersion, Publication, Rollback, Withdrawal};
use sallyport_policy::PolicyText;
use std::sync::Arc;

/// Longest note and name of an author, in bytes.
const WORDS: usize = 1000;

impl Standing {
    /// Puts texts in force as the newest version; gives the one in force where they are that already.
    pub async fn publish(
        self: &Arc<Self>,
        key: PolicyKey,
        publication: Publication,
    ) -> Result<PolicyVersion, StandingError> {
        check_words(&publication.author, &publication.note)?;
        self.change(move |own, inner, tale| {
            let refuse = |tale: &mut Tale, problem| {
                let problems = vec![problem];
                tale.refused(&key, &publication.author, "", &problems);
                StandingError::Broken(problems)
            };
            let texts = placed(&key, &publication.texts).map_err(|problem| refuse(tale, problem))?;
            if let Some((other, name)) = overwritten(inner, &key, &texts) {
                let message =
                    format!("`{name}` is a file of the policy `{other}` too, and would change there");
                let hint = "give it another name here, or publish it there first";
                return Err(refuse(tale, problem(&texts[0].name, &message, Some(hint))));
            }
            let candidate = Candidate {
                key: key.clone(),
                seen: own.disk.digest(&key),
                texts: Some(texts),
                author: publication.author,
                note: publication.note,
            };
            own.edit(inner, candidate, tale)
        })
        .await
    }

    /// Puts an old version in force as a new one.
    pub async fn roll_back(
        self: &Arc<Self>,
        key: PolicyKey,
        rollback: Rollback,
    ) -> Result<PolicyVersion, StandingError> {
        check_words(&rollback.author, "")?;
        self.change(move |own, inner, tale| {
            let old = own.kept_version(&key, rollback.to)?;
            if old.version.withdrawn {
                return Err(StandingError::Malformed(format!(
                    "version {} withdrew the policy `{key}`; withdraw it again instead",
                    rollback.to
                )));
            }
            let candidate = Candidate {
                seen: own.disk.digest(&key),
                key,
                texts: Some(old.texts),
                author: rollback.author,
                note: format!("rollback to {}", rollback.to),
            };
            own.edit(inner, candidate, tale)
        })
        .await
    }

    /// Ends a policy: it binds nobody from now on.
    pub async fn withdraw(
        self: &Arc<Self>,
        key: PolicyKey,
        withdrawal: Withdrawal,
    ) -> Result<PolicyVersion, StandingError> {
        check_words(&withdrawal.author, "")?;
        self.change(move |own, inner, tale| {
            let entry = inner.entries.get(&key);
            if entry.is_none_or(|entry| entry.in_force().is_none() && !entry.unusable) {
                return Err(StandingError::Unknown(format!("no policy `{key}` is in force")));
            }
            let candidate = Candidate {
                seen: own.disk.digest(&key),
                key,
                texts: None,
                author: withdrawal.author,
                note: "withdrawn".to_owned(),
            };
            own.edit(inner, candidate, tale)
        })
        .await
    }

    fn edit(
        &self,
        inner: &mut Inner,
        candidate: Candidate,
        tale: &mut Tale,
    ) -> Result<PolicyVersion, StandingError> {
        let key = candidate.key.clone();
        let hash = candidate.texts.as_deref().map(digest);
        let there = inner.entries.get(&key).and_then(super::Entry::in_force);
        if there.is_none_or(|there| Some(&there.version.hash) != hash.as_ref()) {
            let author = candidate.author.clone();
            let put = self.put_in_force(inner, &[candidate], tale);
            if let Err(NotInForce::Faulty(faults)) = &put {
                let problems: Vec<_> = faults.values().flatten().cloned().collect();
                tale.refused(&key, &author, &hash.unwrap_or_default(), &problems);
            }
            put?;
        }
        self.write_file(inner, &key);
        // Others that were broken may fit now.
        inner.looked = None;
        let newest = inner.entries.get(&key).and_then(|entry| entry.newest.as_ref());
        newest
            .map(|edition| edition.version.clone())
            .ok_or_else(|| StandingError::Failed("the new version was lost".to_owned()))
    }

    /// Brings the file in step with what is in force. Where that fails it is said, and the file is not taken until it changes.
    fn write_file(&self, inner: &mut Inner, key: &PolicyKey) {
        let Some(entry) = inner.entries.get_mut(key) else {
            return;
        };
        let written = match entry.in_force() {
            Some(edition) => self.disk.write(&edition.texts),
            None => self.disk.remove(key),
        };
        let seen = match entry.in_force() {
            Some(edition) => edition.version.hash.clone(),
            None => GONE.to_owned(),
        };
        let noted = written.map_err(StandingError::from).and_then(|()| {
            self.store.saw(key, &seen)?;
            Ok(())
        });
        match noted {
            Ok(()) => {
                entry.seen = seen;
                entry.differs = false;
                entry.broken.clear();
            }
            Err(error) => {
                entry.differs = true;
                tracing::error!(policy = %key, %error, "the policy is in force, and its file is another one");
            }
        }
    }
}

/// A file that is to be written and that another policy in force uses with another text.
fn overwritten(inner: &Inner, key: &PolicyKey, texts: &[PolicyText]) -> Option<(PolicyKey, String)> {
    let others = inner.entries.iter().filter(|(other, _)| *other != key);
    for (other, edition) in others.filter_map(|(other, entry)| Some((other, entry.in_force()?))) {
        let clash = |text: &&PolicyText| {
            let same_name = |own: &&PolicyText| own.name == text.name && own.text != text.text;
            edition.texts.iter().any(|own| same_name(&own))
        };
        if let Some(text) = texts.iter().find(clash) {
            return Some((other.clone(), text.name.clone()));
        }
    }
    None
}

fn check_words(author: &str, note: &str) -> Result<(), StandingError> {
    if author.trim().is_empty() {
        return Err(StandingError::Malformed(
            "`author` says who does this, and is empty".to_owned(),
        ));
    }
    if author.len() > WORDS || note.len() > WORDS {
        let message = format!("`author` and `note` have at most {WORDS} bytes each");
        return Err(StandingError::Malformed(message));
    }
    Ok(())
}
