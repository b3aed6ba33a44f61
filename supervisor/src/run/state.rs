//! All that a run knows, as plain data.
use crate::machine::MachineRecord;
use crate::model::types::{Message, Part, Role, ToolCall, Usage};
use crate::runs::{Outcome, RunRequest, RunState};
use sallyport_shim::wire::BlockedNotice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of one run; a function of its events alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Run id.
    pub run: String,
    /// What was asked.
    pub request: RunRequest,
    /// What it is doing.
    pub phase: Phase,
    /// Step, from 1; 0 before the first.
    pub step: u32,
    /// Step and attempt under which entries stand that do not belong to the answer being made.
    pub settled: (u32, u32),
    /// Messages so far; ends with the user's while the model is asked.
    pub history: Vec<Message>,
    /// Calls of the current step with their results.
    pub calls: Vec<CallState>,
    /// What the next message to the model must tell besides results.
    pub inbox: Inbox,
    /// Session's facts, once it is open.
    pub session: Option<SessionFacts>,
    /// The machine.
    pub machine: MachineState,
    /// Tokens so far, dead attempts included.
    pub usage: Usage,
    /// Refusals so far.
    pub refusals: u32,
    /// Highest sequence of the network log that was seen.
    pub audit_seen: u64,
    /// Inferences that failed in a row.
    pub failures: u32,
    /// Answers without a call in a row.
    pub silent: u32,
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "phase")]
pub enum Phase {
    /// The session is being opened.
    Opening,
    /// A machine is being made.
    Creating,
    /// It is being set up.
    SettingUp,
    /// The model is asked.
    Thinking,
    /// The model could not be reached; a timer runs.
    Waiting {
        /// The timer.
        timer: String,
    },
    /// Calls are carried out.
    Acting,
    /// Session and machine are being removed.
    Closing {
        /// How the run ends.
        outcome: Outcome,
        /// Sentence.
        text: String,
    },
    /// Over.
    Ended {
        /// How.
        outcome: Outcome,
        /// Sentence.
        text: String,
    },
}

/// One call and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallState {
    /// The call.
    pub call: ToolCall,
    /// Text and success, once known.
    pub result: Option<(String, bool)>,
}

/// What waits to be told to the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inbox {
    /// Refusals, each with how often it was met.
    pub refusals: Vec<(BlockedNotice, u32)>,
    /// Refusals that did not fit.
    pub unlisted: u32,
    /// Messages of people: name, text.
    pub said: Vec<(String, String)>,
    /// News of the machine and the run.
    pub news: Vec<String>,
}

/// What the run keeps of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// PEM of the gateway's authority.
    pub ca_pem: String,
    /// By what the machine knows the gateway over ssh.
    #[serde(default)]
    pub ssh_host_key: String,
    /// Placeholders by environment variable.
    pub placeholders: BTreeMap<String, String>,
}

/// Where the machine stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineState {
    /// Machines made so far, this one included.
    pub generation: u32,
    /// How to find it; absent when there is none.
    pub record: Option<MachineRecord>,
    /// Why the one before is gone, until the next one is ready.
    pub lost: Option<String>,
}

impl State {
    /// The state after `Started`.
    pub fn new(run: &str, request: &RunRequest) -> Self {
        Self {
            run: run.into(),
            request: request.clone(),
            phase: Phase::Opening,
            step: 0,
            settled: (0, 1),
            history: vec![Message {
                role: Role::User,
                parts: vec![Part::Text {
                    text: request.task.clone(),
                }],
            }],
            calls: Vec::new(),
            inbox: Inbox::default(),
            session: None,
            machine: MachineState::default(),
            usage: Usage::default(),
            refusals: 0,
            audit_seen: 0,
            failures: 0,
            silent: 0,
        }
    }

    /// Whether nothing can happen to it any more.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// Whether it is on its way out: nothing new is begun.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. } | Phase::Ended { .. })
    }

    /// Where it stands, for people.
    pub fn shown(&self) -> RunState {
        let doing = match &self.phase {
            Phase::Opening => "opening the session at the gateway".to_owned(),
            Phase::Creating => "making the machine".to_owned(),
            Phase::SettingUp => "setting up the machine".to_owned(),
            Phase::Thinking => format!("step {}: asking the model", self.step),
            Phase::Waiting { .. } => format!("step {}: waiting to ask the model again", self.step),
            Phase::Acting => {
                let tool = self.calls.iter().find(|call| call.result.is_none());
                let tool = tool.map_or("tools", |call| call.call.tool.as_str());
                format!("step {}: running `{tool}`", self.step)
            }
            Phase::Closing { .. } => "removing session and machine".to_owned(),
            Phase::Ended { outcome, text } => {
                return RunState::Ended {
                    outcome: *outcome,
                    text: text.clone(),
                };
            }
        };
        RunState::Running { doing }
    }
}
