//! What a journal offers: whole records, in order, confirmed when they are on disk.
use crate::run::command::{Command, Mark};
use crate::run::event::Event;
use crate::runs::{RunState, RunSummary};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Version of the record's shape and of `decide`. A change that makes other commands from old events raises it.
pub const FORMAT: u32 = 1;

/// One event and the commands that `decide` made from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Position in the run, from 1, without gaps.
    pub sequence: u64,
    /// When it was journaled (UTC).
    pub at: jiff::Timestamp,
    /// What happened.
    pub event: Event,
    /// What was to be done.
    pub commands: Vec<Mark>,
}

/// What lists show of a run, kept with its last record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// For people.
    pub summary: RunSummary,
    /// Number of its last record.
    pub sequence: u64,
    /// Tokens read and written so far.
    pub tokens: (u64, u64),
}

impl Head {
    /// Whether nothing can happen to the run any more.
    pub fn is_over(&self) -> bool {
        matches!(self.summary.state, RunState::Ended { .. })
    }
}

/// An idempotency key with the hash of the request that it came with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// As the caller chose it.
    pub key: String,
    /// SHA-256 of the request, hex.
    pub request: String,
}

/// What came of beginning a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It is new.
    New,
    /// The key is known.
    Known {
        /// The run that it started.
        run: String,
        /// The hash of the request that it came with.
        request: String,
    },
}

/// Why a journal cannot do its work.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written now; trying again may help. What was confirmed before is safe.
    #[error("the journal cannot be used: {0}")]
    Unavailable(String),
    /// A record is not what was written.
    #[error(
        "the journal of run `{run}` is damaged at record {sequence}: {what}; restore it from a backup, or stop the run"
    )]
    Damaged {
        /// Run.
        run: String,
        /// Record.
        sequence: u64,
        /// What does not fit.
        what: String,
    },
    /// Somebody else wrote this record: two executors of one run. Ours must stop.
    #[error("record {sequence} of run `{run}` is written already: another executor has this run")]
    Taken {
        /// Run.
        run: String,
        /// Record.
        sequence: u64,
    },
    /// The process is stopping.
    #[error("the journal is closed")]
    Closed,
}

/// Keeps records. All methods may be called at once; the caller orders those of one run.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes a run's first record, unless its key is known.
    async fn begin(&self, key: Option<Key>, head: Head, record: Record) -> Result<Begun, JournalError>;
    /// Writes the next record and the head with it, and waits until both are on disk.
    async fn append(&self, head: Head, record: Record) -> Result<(), JournalError>;
    /// All records of a run, in order.
    async fn records(&self, run: &str) -> Result<Vec<Record>, JournalError>;
    /// All heads, in the order of their ids.
    async fn heads(&self) -> Result<Vec<Head>, JournalError>;
    /// Up to where the gateway's log was looked at.
    async fn audit_seen(&self) -> Result<u64, JournalError>;
    /// Notes it; may be lost in a crash, then some records are looked at twice.
    async fn note_audit(&self, sequence: u64) -> Result<(), JournalError>;
}

/// Kind and content of each command.
pub fn marks(commands: &[Command]) -> Result<Vec<Mark>, JournalError> {
    let mark = |command: &Command| {
        command
            .mark()
            .map_err(|fault| JournalError::Unavailable(format!("a command is no JSON: {fault}")))
    };
    commands.iter().map(mark).collect()
}
