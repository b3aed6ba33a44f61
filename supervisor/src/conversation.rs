//! Conversations: append-only entries, streamed to clients, which a `Rewind` tells to drop a dead attempt.
mod feed;
pub mod follow;
pub mod store;

#[cfg(test)]
mod tests;

use sallyport_shim::wire::BlockedNotice;
use serde::{Deserialize, Serialize};

/// One entry. Sequence numbers grow within a run and are never used twice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Position in the conversation, from 1; also the SSE event id.
    pub sequence: u64,
    /// When (UTC).
    pub at: jiff::Timestamp,
    /// Step of the loop, from 1; 0 before the first.
    pub step: u32,
    /// Attempt at this step, from 1.
    pub attempt: u32,
    /// What happened.
    pub what: What,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The agent says it is done.
    Done,
    /// The agent or the supervisor gave up.
    Failed,
    /// A person stopped it.
    Stopped,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum What {
    /// The task, or a message of a person to the agent.
    Person {
        /// Who.
        user: String,
        /// Text.
        text: String,
    },
    /// A piece of the model's text, as it streams. Replaced by `Said` when the step is final.
    Delta {
        /// Piece.
        text: String,
    },
    /// The model's whole text of a step.
    Said {
        /// Text.
        text: String,
    },
    /// The model calls a tool.
    Call {
        /// Call id.
        call: String,
        /// Tool.
        tool: String,
        /// Its input.
        input: serde_json::Value,
    },
    /// A piece of a running tool's output.
    Output {
        /// Call id.
        call: String,
        /// Text (lossy UTF-8).
        text: String,
    },
    /// A tool's result, as the model will read it.
    Result {
        /// Call id.
        call: String,
        /// Text.
        text: String,
        /// Whether it succeeded.
        ok: bool,
    },
    /// The gateway refused something.
    Refused {
        /// What, why, and the remedy.
        notice: BlockedNotice,
    },
    /// A request for access and what came of it.
    Access {
        /// What was asked.
        wanted: sallyport_policy::Wanted,
        /// Why, in the agent's words.
        why: String,
        /// Whether it was granted.
        granted: bool,
        /// Sentence: scope and expiry, or why not.
        text: String,
    },
    /// Everything of this step with a lower attempt is void: drop it.
    Rewind {
        /// First void sequence.
        from: u64,
        /// Why the attempt died.
        why: String,
    },
    /// Something the supervisor has to say (machine made, restart, stuck...).
    Note {
        /// Text.
        text: String,
    },
    /// The run is over; nothing follows.
    Ended {
        /// How.
        outcome: Outcome,
        /// Sentence.
        text: String,
    },
}
