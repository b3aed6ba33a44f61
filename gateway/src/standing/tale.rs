//! What a change of the standing policies leaves behind: audit records, lines of the log, counts.
use super::StandingError;
use crate::audit::Sink;
use crate::control::types::{AuditRecord, PolicyKey, PolicyVersion, Verdict};
use crate::metrics::{Metrics, Outcome};
use crate::session::{SessionError, Sessions};
use sallyport_policy::Problem;

/// Most problems that one record tells; the log has all of them.
const TOLD: usize = 5;

/// Collected while the change is made, told after it.
#[derive(Debug, Default)]
pub(super) struct Tale {
    records: Vec<AuditRecord>,
    /// Sessions whose policy is another one now.
    pub(super) changed: Vec<String>,
    pub(super) outcome: Option<Outcome>,
}

impl Tale {
    /// A version is in force.
    pub(super) fn taken(&mut self, key: &PolicyKey, version: &PolicyVersion) {
        self.outcome = Some(Outcome::Taken);
        let what = if version.withdrawn {
            "withdraws it"
        } else {
            "is in force"
        };
        let note = match version.note.as_str() {
            "" => String::new(),
            note => format!(": {note}"),
        };
        let (policy, number, author) = (key.to_string(), version.number, version.author.as_str());
        tracing::info!(
            policy,
            version = number,
            hash = version.hash,
            author,
            "version {number} {what}"
        );
        let reason = format!("version {number} of the policy `{policy}` {what}, by `{author}`{note}");
        self.records.push(record(
            key,
            version.author.clone(),
            &version.hash,
            Verdict::Allowed,
            reason,
        ));
    }

    /// A change is refused; what was in force stays so.
    pub(super) fn refused(&mut self, key: &PolicyKey, author: &str, hash: &str, problems: &[Problem]) {
        if self.outcome != Some(Outcome::Taken) {
            self.outcome = Some(Outcome::Refused);
        }
        let policy = key.to_string();
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        tracing::error!(
            policy,
            author,
            problems = all.join("\n"),
            "a policy cannot be used; what was in force stays so"
        );
        // A record is one line; a problem's hint stands on a second one.
        let told = all
            .iter()
            .take(TOLD)
            .cloned()
            .collect::<Vec<_>>()
            .join("; ")
            .replace("\n  ", " ");
        let reason = format!("a change of the policy `{policy}` by `{author}` is refused: {told}");
        self.records
            .push(record(key, author.to_owned(), hash, Verdict::Denied, reason));
    }

    /// Writes it all down.
    pub(super) async fn tell(
        self,
        sink: &Sink,
        sessions: &Sessions,
        metrics: &Metrics,
    ) -> Result<(), StandingError> {
        if let Some(outcome) = self.outcome {
            metrics.reload(outcome);
        }
        for record in self.records {
            let reason = record.reason.clone();
            if let Err(error) = sink.write(record).await {
                tracing::error!(%error, reason, "what happened to a policy could not be recorded");
                return Err(error.into());
            }
        }
        for session in self.changed {
            match sessions.record_facts(&session).await {
                // One that ended meanwhile needs no facts.
                Ok(()) | Err(SessionError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn record(key: &PolicyKey, author: String, hash: &str, verdict: Verdict, reason: String) -> AuditRecord {
    AuditRecord {
        user: author,
        rule: key.to_string(),
        reason,
        policy_hash: hash.to_owned(),
        ending: "complete".to_owned(),
        ..AuditRecord::of("policy", verdict)
    }
}
