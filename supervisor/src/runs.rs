//! What the web, the API and the command line may do with runs.
use crate::conversation::Entry;
pub use crate::conversation::Outcome;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sallyport_policy::{PolicyText, Who};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a run is started from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Short name for people.
    pub title: String,
    /// What the agent is to do.
    pub task: String,
    /// Facts vouched for (`run` and `machine` are filled in).
    #[serde(default)]
    pub who: Who,
    /// Policy first, then what it includes.
    pub policies: Vec<PolicyText>,
    /// Which model.
    pub model: ModelChoice,
    /// Its environment.
    #[serde(default)]
    pub environment: Environment,
    /// Steps after which the run is stopped as stuck; 200 where absent.
    #[serde(default)]
    pub step_limit: Option<u32>,
}

/// Which model drives the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum ModelChoice {
    /// Replays turns from a YAML text.
    Scripted {
        /// The turns.
        turns: String,
    },
    /// Anthropic Messages API.
    Anthropic {
        /// Model name.
        model: String,
        /// Base URL, the vendor's where absent.
        #[serde(default)]
        base_url: Option<String>,
    },
    /// Any OpenAI-compatible chat completions API.
    Openai {
        /// Model name.
        model: String,
        /// Base URL, the vendor's where absent.
        #[serde(default)]
        base_url: Option<String>,
    },
}

/// What the machine needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Environment {
    /// Name.
    pub name: String,
    /// Variables for every command.
    pub env: BTreeMap<String, String>,
    /// Fixed addresses for names (the gateway's eyes, not the machine's).
    pub hosts: BTreeMap<String, IpAddr>,
    /// PEM of authorities trusted upstream besides the system's.
    pub upstream_roots_pem: String,
    /// Host folders shown read-only inside, as (host path, path inside).
    pub binds: Vec<(String, String)>,
    /// Files written into the machine before the first step: path inside, text.
    pub files: BTreeMap<String, String>,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum RunState {
    /// Accepted, not begun.
    Queued,
    /// Going on.
    Running {
        /// What it is doing, for people.
        doing: String,
    },
    /// It cannot go on by itself, and nothing of it is lost: its journal was written by another version, or is damaged.
    Held {
        /// Why, and the way out.
        why: String,
    },
    /// Over.
    Ended {
        /// How.
        outcome: Outcome,
        /// Sentence.
        text: String,
    },
}

/// A run as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Id (UUID v7).
    pub id: String,
    /// Title.
    pub title: String,
    /// Who launched it.
    pub user: String,
    /// When.
    pub created_at: jiff::Timestamp,
    /// Steps begun.
    pub steps: u32,
    /// Refusals so far.
    pub refusals: u32,
    /// Where it stands.
    pub state: RunState,
}

/// Why an operation on runs failed.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// No such run.
    #[error("there is no run `{0}`")]
    Unknown(String),
    /// The request is wrong; the text says what and how to mend it.
    #[error("{0}")]
    Invalid(String),
    /// The policy is wrong.
    #[error("the policy has problems")]
    Policy(Vec<sallyport_policy::Problem>),
    /// The same idempotency key was used with another request.
    #[error("this idempotency key belongs to another request (sent {sent}, known {known})")]
    Conflict {
        /// Hash of what was sent.
        sent: String,
        /// Hash of what is known.
        known: String,
    },
    /// Ended already.
    #[error("run `{0}` has ended")]
    Ended(String),
    /// Ours; trying again may help.
    #[error("{0}")]
    Unavailable(String),
}

/// The engine as seen by web and command line.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Starts a run; the same key with the same request gives the same run.
    async fn start(&self, request: RunRequest, key: Option<String>) -> Result<RunSummary, RunsError>;
    /// Newest first.
    async fn list(&self) -> Result<Vec<RunSummary>, RunsError>;
    /// One.
    async fn get(&self, id: &str) -> Result<RunSummary, RunsError>;
    /// A message to the agent, seen at its next step.
    async fn say(&self, id: &str, user: &str, text: &str) -> Result<(), RunsError>;
    /// Stops it: cancels what runs, destroys the machine.
    async fn stop(&self, id: &str, user: &str) -> Result<(), RunsError>;
    /// What `follow` tells of the entries that are there now.
    async fn past(&self, id: &str, after: u64) -> Result<Vec<Entry>, RunsError>;
    /// Entries after a sequence, then live until `Ended`. Void attempts are left out of what is past, with a `Rewind` where a client may have seen them.
    async fn follow(&self, id: &str, after: u64) -> Result<BoxStream<'static, Entry>, RunsError>;
}
