//! The authority that a session's machine was told to trust: the first one that was current, for as long as it lives.
use super::keep::{Kept, StateError};
use super::registry::Sessions;
use super::{Session, SessionError};

impl Session {
    /// Fingerprint of the authority; none while nobody was told of one.
    pub fn authority(&self) -> Option<&str> {
        self.authority.get().map(String::as_str)
    }

    /// Remembers the authority unless there is one; durable when it returns.
    fn trust(&self, fingerprint: &str) -> Result<(), StateError> {
        if self.authority.get().is_some() {
            return Ok(());
        }
        // The lock is held over writing: grants may be used up meanwhile.
        let mut kept = self.kept();
        let authority = kept.authority.clone().unwrap_or_else(|| fingerprint.to_owned());
        let new = Kept {
            authority: Some(authority.clone()),
            ..kept.clone()
        };
        self.keeper.save(&self.id, &new)?;
        *kept = new;
        // Whoever was earlier wrote the same under the lock.
        let _already = self.authority.set(authority);
        Ok(())
    }
}

impl Sessions {
    /// The authority of a session; `current` is it from now on where it had none. Blocks for some milliseconds then.
    pub fn trusting(&self, id: &str, current: &str) -> Result<String, SessionError> {
        let session = self
            .by_id(id)
            .ok_or_else(|| SessionError::Unknown(id.escape_debug().to_string()))?;
        session.trust(current)?;
        Ok(session.authority().unwrap_or(current).to_owned())
    }

    /// Before another authority becomes current: every session that has none yet keeps the one that was.
    pub fn all_trusting(&self, current: &str) -> Result<(), StateError> {
        self.list().iter().try_for_each(|session| session.trust(current))
    }
}
