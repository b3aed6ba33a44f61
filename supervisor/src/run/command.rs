//! What a run wants done. Commands are carried out after the event that made them is in the journal.
use crate::conversation::What;
use crate::machine::{MachineRecord, MachineSpec};
use crate::model::types::{ModelRequest, ToolCall};
use crate::run::event::{Asker, tool_key};
use crate::runs::Outcome;
use sallyport_policy::Wanted;
use sallyport_shim::wire::BlockedNotice;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "command")]
pub enum Command {
    /// Open the session at the gateway.
    OpenSession,
    /// Make a machine.
    CreateMachine {
        /// Which of the run's machines, from 1.
        generation: u32,
        /// From what.
        spec: MachineSpec,
    },
    /// Attach it to the gateway, make it trust, give it variables and files.
    SetupMachine {
        /// Which machine.
        generation: u32,
        /// How to find it.
        record: MachineRecord,
        /// PEM of the gateway's authority.
        ca_pem: String,
        /// Variables for every command.
        env: BTreeMap<String, String>,
        /// Files by path.
        files: BTreeMap<String, String>,
    },
    /// Ask the model.
    Infer {
        /// Step, from 1.
        step: u32,
        /// The whole question.
        request: ModelRequest,
    },
    /// Carry out a tool call in the machine.
    RunTool {
        /// Step of the call.
        step: u32,
        /// Attempt of the answer that made the call.
        attempt: u32,
        /// Which call of the step, from 0.
        index: u32,
        /// The machine.
        record: MachineRecord,
        /// Which machine.
        generation: u32,
        /// The stable id under which the machine runs it at most once.
        exec: String,
        /// The call.
        call: ToolCall,
    },
    /// Ask the gateway for access.
    RequestAccess {
        /// Who asks.
        asker: Asker,
        /// The machine whose command line asks, where it does.
        record: Option<MachineRecord>,
        /// What is wanted.
        wanted: Wanted,
        /// Why, in the agent's words.
        why: String,
    },
    /// Tell the machine of a refusal. Tried once.
    Notify {
        /// The refusal.
        notice: BlockedNotice,
    },
    /// Append to the conversation.
    Say {
        /// Step.
        step: u32,
        /// Attempt.
        attempt: u32,
        /// What.
        what: What,
    },
    /// Cancel everything that is going on.
    Cancel,
    /// Fire after a while, counted from when this was journaled.
    Timer {
        /// Name.
        id: String,
        /// Milliseconds.
        ms: u64,
    },
    /// End the session and destroy every machine of the run.
    CloseAll,
    /// The run is over.
    End {
        /// How.
        outcome: Outcome,
        /// Sentence.
        text: String,
    },
}

/// What the journal keeps of a command, to compare at replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Kind.
    pub kind: String,
    /// SHA-256 of the content, hex.
    pub hash: String,
}

impl Command {
    /// Kind, as in the journal.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OpenSession => "open-session",
            Self::CreateMachine { .. } => "create-machine",
            Self::SetupMachine { .. } => "setup-machine",
            Self::Infer { .. } => "infer",
            Self::RunTool { .. } => "run-tool",
            Self::RequestAccess { .. } => "request-access",
            Self::Notify { .. } => "notify",
            Self::Say { .. } => "say",
            Self::Cancel => "cancel",
            Self::Timer { .. } => "timer",
            Self::CloseAll => "close-all",
            Self::End { .. } => "end",
        }
    }

    /// Stable key of a command that has an outcome, equal to its event's [`super::event::Event::settles`].
    /// A command without one is done when it is applied.
    pub fn key(&self) -> Option<String> {
        Some(match self {
            Self::OpenSession => "session".into(),
            Self::CreateMachine { generation, .. } => format!("machine-{generation}"),
            Self::SetupMachine { generation, .. } => format!("setup-{generation}"),
            Self::Infer { step, .. } => format!("infer-{step}"),
            Self::RunTool { step, index, .. } => tool_key(*step, *index),
            Self::RequestAccess { asker, .. } => asker.key(),
            Self::Timer { id, .. } => format!("timer-{id}"),
            Self::CloseAll => "close".into(),
            _ => return None,
        })
    }

    /// Kind and content hash. The error is a content that is no JSON, which no journal can hold.
    pub fn mark(&self) -> Result<Mark, serde_json::Error> {
        let bytes = serde_json::to_vec(self)?;
        let hash = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Mark {
            kind: self.kind().into(),
            hash,
        })
    }
}
