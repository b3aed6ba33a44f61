//! The audit log: one record for each decision and each finished exchange, on disk before it counts.
use crate::control::types::AuditRecord;

/// Takes records; a cheap handle on the one writer.
#[derive(Debug, Clone)]
pub struct Sink {}

/// Why a record could not be written; new connections are refused while this lasts.
#[derive(Debug, thiserror::Error)]
#[error("the audit log cannot be written: {0}")]
pub struct AuditError(pub String);

impl Sink {
    /// Writes and waits until the record is durable. `sequence` and `chain` are filled in here.
    pub async fn write(&self, record: AuditRecord) -> Result<u64, AuditError> {
        let _ = record;
        todo!()
    }
    /// Queues; durable at the latest after 1 s. Waits while the queue is full, fails while the disk is.
    pub async fn note(&self, record: AuditRecord) -> Result<(), AuditError> {
        let _ = record;
        todo!()
    }
    /// Whether records can be written now; ask before a connection is accepted.
    pub fn healthy(&self) -> bool {
        todo!()
    }
}
