//! The protocol between supervisor and shim: framed, numbered, acknowledged, over any byte stream. Pure but for `channel`.
//!
//! A frame is: u32 head length, u32 body length (big endian), head as JSON ([`Head`]), body as raw bytes.
//! Each side numbers its frames from 1 and keeps those not yet acknowledged; after a reconnect both say in
//! `Hello` what they have received, and the rest is sent again. A frame with a known number is dropped.
pub mod channel;
mod codec;
mod link;

pub use codec::{decode, encode};
pub use link::{Link, Receipt};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this protocol, told in both `Hello`s.
pub const VERSION: u32 = 1;

/// Largest head, in bytes.
pub const HEAD_LIMIT: u32 = 1 << 20;
/// Largest body, in bytes.
pub const BODY_LIMIT: u32 = 1 << 20;

/// A head and its body.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<M> {
    /// Numbers and message.
    pub head: Head<M>,
    /// Raw bytes that belong to the message; empty for most.
    pub body: Bytes,
}

/// What is wrong with a frame or its numbers. Always the peer's fault, except `TooLong`; the connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A length above [`HEAD_LIMIT`] or [`BODY_LIMIT`].
    #[error("{part} of {bytes} bytes is longer than the limit of {limit}")]
    TooLong {
        /// `head` or `body`.
        part: &'static str,
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// The head is no message of this protocol.
    #[error("the head cannot be read: {0}")]
    BadHead(String),
    /// Frames were left out.
    #[error("frame {got} came where {expected} was expected")]
    Gap {
        /// Number received.
        got: u64,
        /// Number expected.
        expected: u64,
    },
    /// The peer acknowledges what was never sent.
    #[error("frame {got} is acknowledged, but only {sent} were sent")]
    BadAcknowledgement {
        /// Number acknowledged.
        got: u64,
        /// Highest number sent.
        sent: u64,
    },
}

/// The head of a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head<M> {
    /// This frame's number in its direction; 0 for `Hello` and bare acknowledgements, which are not kept.
    pub sequence: u64,
    /// Highest number received from the other side without gap.
    pub acknowledged: u64,
    /// The message; absent in a bare acknowledgement.
    pub message: Option<M>,
}

/// From the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ToShim {
    /// First frame of every connection.
    Hello {
        /// Protocol version, 1.
        version: u32,
        /// Random, new at each start of the supervisor's client: a new one begins both numberings anew.
        session: String,
    },
    /// What the machine must be told before anything runs: trust, environment, clock.
    Setup {
        /// PEM of the gateway's authority.
        ca_pem: String,
        /// Variables for every command.
        env: BTreeMap<String, String>,
        /// Wall clock of the host, in Unix milliseconds.
        unix_ms: i64,
    },
    /// Runs a command. A known `id` is never run twice: its output and end are told again.
    Exec {
        /// Stable id, chosen by the supervisor (run, step, call).
        id: String,
        /// Program and arguments.
        argv: Vec<String>,
        /// Working directory.
        cwd: String,
        /// Variables besides the machine's.
        env: BTreeMap<String, String>,
        /// Time limit in milliseconds.
        timeout_ms: u64,
    },
    /// Ends a command and all its descendants.
    Cancel {
        /// The command's id.
        id: String,
    },
    /// Writes a file (body = content or a piece of it), atomically, making its folders.
    WriteFile {
        /// Id for the answer.
        id: String,
        /// Absolute path.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Whether more pieces with this id follow; only after the last one is there a file and an answer.
        #[serde(default)]
        more: bool,
    },
    /// Reads a file, at most 1 MiB from an offset.
    ReadFile {
        /// Id for the answer.
        id: String,
        /// Absolute path.
        path: String,
        /// Where to begin, in bytes.
        offset: u64,
        /// How much, in bytes.
        limit: u64,
    },
    /// A refusal by the gateway, for `sallyport-shim blocked` and running tools.
    Blocked {
        /// What was refused.
        notice: BlockedNotice,
    },
    /// What the agent may know of its credentials now, all of them; in answer to `AskCredentials`, and whenever they change.
    Credentials {
        /// Each once, in the policy's order.
        known: Vec<KnownCredential>,
    },
    /// Answer to a `Request`.
    Answer {
        /// The request's id.
        id: String,
        /// Whether it was granted.
        granted: bool,
        /// Sentence for the agent.
        text: String,
    },
}

/// From the shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum FromShim {
    /// First frame of every connection.
    Hello {
        /// Protocol version, 1.
        version: u32,
        /// Random, new at each start of the shim: tells a restart from a reconnect.
        boot: String,
        /// Commands that are running now.
        #[serde(default)]
        running: Vec<String>,
    },
    /// Answer to each `Exec`, before anything else about it: what follows is its output from the beginning.
    Started {
        /// The command.
        id: String,
        /// Whether it was known already, so that it is told again and not run again.
        known: bool,
    },
    /// Setup is done.
    Ready {
        /// What could not be set up, for people.
        warnings: Vec<String>,
    },
    /// A piece of output (body = bytes, not necessarily UTF-8).
    Output {
        /// The command.
        id: String,
        /// Which stream.
        stream: Stream,
    },
    /// A command ended. Comes exactly once for each `Started`, after all its output.
    Exited {
        /// The command.
        id: String,
        /// How.
        end: ExecEnd,
        /// Where the whole output lies in the machine, if it was too long to be sent whole.
        full_output: Option<String>,
    },
    /// A file was written, or read (body = content).
    File {
        /// Id of the call.
        id: String,
        /// Error text, if it failed.
        error: Option<String>,
        /// Size of the file on disk, in bytes.
        size: u64,
    },
    /// What may the agent know of its credentials? Answered with `Credentials`.
    AskCredentials,
    /// The agent asks for access by `sallyport-shim request-access`, or for a credential by `secret request`.
    Request {
        /// Id for the answer.
        id: String,
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// Method, if only one is wanted.
        method: Option<String>,
        /// Path, if only one is wanted.
        path: Option<String>,
        /// The credential that is wanted there, if it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credential: Option<String>,
        /// Why, in the agent's words.
        why: String,
    },
}

/// What the agent may know of a credential: everything but its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownCredential {
    /// Name in the policy.
    pub name: String,
    /// What it is for.
    pub purpose: Option<String>,
    /// The variable that holds the placeholder.
    pub env: Option<String>,
    /// What stands for the value.
    pub placeholder: String,
    /// Hosts to which it may go, as the policy writes them: names, `*.NAME`, addresses, ranges.
    pub hosts: Vec<String>,
    /// Single ports at which it may go there; empty where none is named.
    pub ports: Vec<u16>,
    /// Where in a request it may stand, as the policy writes it.
    pub places: Vec<String>,
    /// The user name that belongs to it.
    pub user: Option<String>,
    /// Whether it may be shown with each request to its hosts, also where nobody asks for it.
    pub throughout: bool,
    /// How it may be had where it must be asked for: `policy` or `person`.
    pub lender: Option<String>,
    /// Hosts at which it is lent now.
    pub lent_at: Vec<String>,
}

/// Which output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum ExecEnd {
    /// By itself.
    Code {
        /// Exit code.
        code: i32,
    },
    /// By a signal that was not ours.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// Its time was over.
    TimedOut,
    /// Cancelled.
    Cancelled,
    /// It could not be started.
    NotStarted {
        /// Why.
        error: String,
    },
    /// The shim was restarted while it ran: it may have had effects.
    Lost,
}

/// A refusal, told to the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedNotice {
    /// Decision id.
    pub id: String,
    /// Unix milliseconds.
    pub unix_ms: i64,
    /// What was tried, e.g. `GET https://other.test/x`.
    pub what: String,
    /// Rule.
    pub rule: String,
    /// Sentence.
    pub reason: String,
    /// What may be done about it.
    pub remedy: String,
}
