//! What log-ins gave in a session: kept in memory, told from outside by placeholders that outlive the process.
use super::bind::Bound;
use super::carried::is_of_answers;
use super::keep::StateError;
use super::registry::Sessions;
use super::{Live, Session};
use crate::secret::SessionSecrets;
use crate::secret::capture::{CannotKeep, Captured, LogIn};
use sallyport_policy::{CanonicalPath, Credential, Destination, Policy};
use std::sync::Arc;

/// Why what a log-in gave cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The upstream's: what it gave.
    #[error(transparent)]
    Value(#[from] CannotKeep),
    /// The operator's: the state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Sessions {
    /// Keeps what a log-in gave, in force with its placeholders when this returns. Blocks for some milliseconds.
    pub fn capture(
        &self,
        session: &Session,
        captured: Vec<Captured>,
    ) -> Result<Arc<SessionSecrets>, CaptureError> {
        let _changing = self.changing();
        let live = session.live.load_full();
        let bound = live.bound.load_full();
        let secrets = Arc::new(bound.secrets.with_captured(captured)?);
        let mut placeholders = session.kept().placeholders.clone();
        for credential in live
            .credentials()
            .iter()
            .filter(|credential| is_of_answers(credential))
        {
            placeholders.insert(credential.name.clone(), secrets.placeholders_of(&credential.name));
        }
        session.set_placeholders(placeholders)?;
        live.bound.store(Arc::new(Bound {
            secrets: secrets.clone(),
            warnings: bound.warnings.clone(),
        }));
        Ok(secrets)
    }
}

impl Session {
    /// The credentials that the answer to a request gives values of, and where those stand in it.
    pub fn log_ins(&self, destination: &Destination, path: &CanonicalPath) -> Vec<LogIn> {
        let live = self.live.load();
        let all = live.credentials().iter().map(|credential| {
            let parts = credential.parts_of_answer(destination, path);
            (credential.name.clone(), parts.to_vec())
        });
        all.filter(|(_, parts)| !parts.is_empty()).collect()
    }
}

impl Live {
    fn credentials(&self) -> &[Credential] {
        self.policy.as_ref().map(Policy::credentials).unwrap_or_default()
    }
}
