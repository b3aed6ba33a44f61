//! What a machine driver offers, and the handle through which a run uses its machine.
pub mod channel;
pub mod keeper;
pub mod namespace;
pub mod network;
pub mod reconcile;

use async_trait::async_trait;
pub use network::{Attach, Attachment};
use sallyport_shim::wire::{BlockedNotice, ExecEnd, KnownCredential, Stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// What a machine is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    /// Machine id; creating twice with one id gives one machine.
    pub id: String,
    /// Host folders shown read-only inside, as (host path, path inside).
    pub binds: Vec<(String, String)>,
}

/// What the journal keeps of a machine, enough to find it again after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Machine id.
    pub id: String,
    /// Driver's kind, e.g. `namespace`.
    pub driver: String,
    /// Driver's own facts (process id and start time, paths, ...).
    pub facts: serde_json::Value,
}

/// What a driver can do besides create and destroy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Hibernate and resume.
    pub hibernate: bool,
    /// Checkpoint and fork.
    pub checkpoint: bool,
}

/// Whether a machine is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Running.
    Running,
    /// Gone, or never made.
    Gone,
}

/// Why a machine operation failed.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The host lacks something; the text says what to do.
    #[error("{0}")]
    Host(String),
    /// The machine is gone.
    #[error("machine `{0}` is gone")]
    Gone(String),
    /// A passing fault: trying again may help.
    #[error("machine `{id}`: {what}")]
    Passing {
        /// Machine.
        id: String,
        /// What happened.
        what: String,
    },
    /// The machine refused or failed the call itself (no such file, ...).
    #[error("{0}")]
    Call(String),
}

/// A driver of one kind of machine. All operations are idempotent by the machine's id.
#[async_trait]
pub trait Driver: Attach {
    /// Name of the kind.
    fn kind(&self) -> &'static str;
    /// What it can do.
    fn abilities(&self) -> Abilities;
    /// Whether this host can run such machines; the error says what to do.
    async fn probe(&self) -> Result<(), MachineError>;
    /// Makes the machine, or finds it.
    async fn create(&self, spec: &MachineSpec) -> Result<MachineRecord, MachineError>;
    /// Its control channel, reconnecting by itself until the machine is gone.
    async fn connect(&self, record: &MachineRecord) -> Result<Machine, MachineError>;
    /// Whether it is there.
    async fn status(&self, record: &MachineRecord) -> Result<Status, MachineError>;
    /// Removes it with all its parts. Removing what is gone is no error.
    async fn destroy(&self, record: &MachineRecord) -> Result<(), MachineError>;
    /// Every machine of this driver in its state directory, for reconciling.
    async fn list(&self) -> Result<Vec<MachineRecord>, MachineError>;
}

/// One command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecCall {
    /// Stable id: the same id is never run twice in one machine.
    pub id: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// Variables besides the machine's.
    pub env: BTreeMap<String, String>,
    /// Time limit in milliseconds.
    pub timeout_ms: u64,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// Which stream.
    pub stream: Stream,
    /// Bytes.
    pub bytes: bytes::Bytes,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutcome {
    /// How.
    pub end: ExecEnd,
    /// Where the whole output lies in the machine, if it was too long.
    pub full_output: Option<String>,
}

/// A request that came from the agent's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentRequest {
    /// For access, or for a credential.
    Access {
        /// Id for the answer.
        id: String,
        /// What is wanted.
        wanted: sallyport_policy::Wanted,
        /// Why.
        why: String,
    },
    /// For what may be known of the credentials; [`Shim::credentials`] answers it.
    Credentials,
}

/// The operations of a connected machine; `Machine` is a cheap handle on it.
#[async_trait]
pub trait Shim: Send + Sync {
    /// Trust, environment and clock; before anything else.
    async fn setup(&self, ca_pem: &str, env: &BTreeMap<String, String>) -> Result<Vec<String>, MachineError>;
    /// Runs a command, or finds the running or finished one with this id; output goes to `output` as it comes.
    async fn exec(
        &self,
        call: &ExecCall,
        output: mpsc::Sender<OutputPiece>,
    ) -> Result<ExecOutcome, MachineError>;
    /// Cancels a command.
    async fn cancel(&self, id: &str) -> Result<(), MachineError>;
    /// Writes a file.
    async fn write_file(&self, path: &str, content: &[u8], mode: u32) -> Result<(), MachineError>;
    /// Reads a file, at most `limit` bytes (1 MiB at most) from `offset`; with the file's size.
    async fn read_file(&self, path: &str, offset: u64, limit: u64) -> Result<(Vec<u8>, u64), MachineError>;
    /// Tells a refusal.
    async fn blocked(&self, notice: BlockedNotice) -> Result<(), MachineError>;
    /// Tells what the agent may know of its credentials; commands that are run afterwards find it.
    async fn credentials(&self, known: Vec<KnownCredential>) -> Result<(), MachineError>;
    /// The next request of the agent's command line; none when the machine is gone.
    async fn next_request(&self) -> Option<AgentRequest>;
    /// Answers one.
    async fn answer(&self, id: &str, granted: bool, text: &str) -> Result<(), MachineError>;
}

/// A connected machine.
pub type Machine = std::sync::Arc<dyn Shim>;
