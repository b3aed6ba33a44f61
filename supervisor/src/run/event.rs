//! What may happen to a run. Events are journaled; nothing else changes a run's state.
use crate::machine::MachineRecord;
use crate::model::types::{Answer, Usage};
use crate::runs::RunRequest;
use sallyport_policy::Wanted;
use sallyport_shim::wire::BlockedNotice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// The run was accepted. Always the first event and never a later one.
    Started {
        /// Run id.
        run: String,
        /// What was asked.
        request: Box<RunRequest>,
    },
    /// The gateway opened the session.
    SessionReady {
        /// PEM of the authority that the machine shall trust.
        ca_pem: String,
        /// By what the machine knows the gateway over ssh: a line of OpenSSH's `known_hosts`.
        #[serde(default)]
        ssh_host_key: String,
        /// Placeholders by environment variable.
        placeholders: BTreeMap<String, String>,
        /// For people.
        warnings: Vec<String>,
    },
    /// The machine exists.
    MachineReady {
        /// Which of the run's machines, from 1.
        generation: u32,
        /// How to find it again.
        record: MachineRecord,
    },
    /// The machine is attached, trusts the gateway and has its files.
    MachineSetUp {
        /// Which machine.
        generation: u32,
        /// For people.
        warnings: Vec<String>,
    },
    /// The machine is gone.
    MachineLost {
        /// Which machine.
        generation: u32,
        /// What is known.
        why: String,
    },
    /// Session or machine could not be made, for good.
    PreparationFailed {
        /// Key of the command that failed.
        key: String,
        /// What, why, and what to do.
        why: String,
    },
    /// The model answered.
    Inferred {
        /// Step of the question.
        step: u32,
        /// Which attempt succeeded.
        attempt: u32,
        /// The answer.
        answer: Answer,
        /// Tokens of the attempts that failed before.
        wasted: Usage,
    },
    /// The model did not answer within the activity's own attempts.
    InferFailed {
        /// Step of the question.
        step: u32,
        /// The last attempt.
        attempt: u32,
        /// Why.
        why: String,
        /// Whether trying again later may help.
        passing: bool,
        /// Tokens of all these attempts.
        wasted: Usage,
    },
    /// A tool gave its result.
    ToolFinished {
        /// Step of the call.
        step: u32,
        /// Which call of the step, from 0.
        index: u32,
        /// Text for the model.
        text: String,
        /// Whether it succeeded.
        ok: bool,
    },
    /// The agent's command line asks for access.
    AccessAsked {
        /// Id for the answer.
        id: String,
        /// What is wanted.
        wanted: Wanted,
        /// Why, in the agent's words.
        why: String,
    },
    /// The gateway answered a request for access.
    AccessAnswered {
        /// Who had asked.
        asker: Asker,
        /// What was wanted.
        wanted: Wanted,
        /// Why, in the agent's words.
        why: String,
        /// Whether it may go there now.
        granted: bool,
        /// Sentence: scope and expiry, or why not.
        text: String,
    },
    /// The gateway refused something.
    Refused {
        /// Sequence of the record in the network log.
        audit: u64,
        /// What, why, and the remedy.
        notice: BlockedNotice,
    },
    /// A person said something to the agent.
    PersonSaid {
        /// Who.
        user: String,
        /// Text.
        text: String,
    },
    /// A person wants the run to stop.
    StopAsked {
        /// Who.
        user: String,
    },
    /// A timer's time has come.
    TimerFired {
        /// Which.
        id: String,
    },
    /// Session and machines are gone.
    Closed {
        /// What could not be removed, for people.
        notes: Vec<String>,
    },
}

/// Who asks for access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "asker")]
pub enum Asker {
    /// A tool call of the model.
    Tool {
        /// Step of the call.
        step: u32,
        /// Which call of the step, from 0.
        index: u32,
    },
    /// The command line in the machine.
    CommandLine {
        /// Id for the answer.
        id: String,
    },
}

impl Event {
    /// Key of the command whose outcome this is, if it is one's.
    pub fn settles(&self) -> Option<String> {
        Some(match self {
            Self::SessionReady { .. } => "session".into(),
            Self::MachineReady { generation, .. } => format!("machine-{generation}"),
            Self::MachineSetUp { generation, .. } => format!("setup-{generation}"),
            Self::Inferred { step, .. } | Self::InferFailed { step, .. } => format!("infer-{step}"),
            Self::ToolFinished { step, index, .. } => tool_key(*step, *index),
            Self::AccessAnswered { asker, .. } => asker.key(),
            Self::TimerFired { id } => format!("timer-{id}"),
            Self::Closed { .. } => "close".into(),
            Self::PreparationFailed { key, .. } => key.clone(),
            _ => return None,
        })
    }
}

impl Asker {
    /// Key of the command that asks the gateway.
    pub fn key(&self) -> String {
        match self {
            Self::Tool { step, index } => tool_key(*step, *index),
            Self::CommandLine { id } => format!("access-{id}"),
        }
    }
}

/// Key of the command that carries out a tool call.
pub fn tool_key(step: u32, index: u32) -> String {
    format!("tool-{step}-{index}")
}
