//! The record that stands before what a session does: whose it is, and under which policy.
use super::Session;
use crate::audit::{AuditError, Sink};
use crate::control::types::{AuditRecord, Verdict};
use sallyport_policy::Who;
use std::sync::{Arc, PoisonError};

/// What such a record tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    who: Arc<Who>,
    policy_hash: String,
}

impl Session {
    /// Writes such a record unless the newest one of this process told the same; durable before this returns.
    pub(super) async fn record_facts(&self, sink: &Sink) -> Result<(), AuditError> {
        let facts = Facts {
            who: self.who(),
            policy_hash: self.policy_hash(),
        };
        if self.recorded().as_ref() == Some(&facts) {
            return Ok(());
        }
        sink.write(record(self, &facts)).await?;
        *self.recorded() = Some(facts);
        Ok(())
    }

    fn recorded(&self) -> std::sync::MutexGuard<'_, Option<Facts>> {
        // Replaced whole, so that a panic elsewhere leaves nothing half done.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(session: &Session, facts: &Facts) -> AuditRecord {
    AuditRecord {
        session: session.id.clone(),
        user: facts.who.user.clone(),
        reason: "the session is open under this policy, for whom is told here".to_owned(),
        policy_hash: facts.policy_hash.clone(),
        ending: "complete".to_owned(),
        who: Some(Box::new((*facts.who).clone())),
        ..AuditRecord::of("session", Verdict::Allowed)
    }
}
