//! The loop as conversations: what happens, what is to be done.
mod calls;
mod course;

use super::*;
use crate::machine::MachineRecord;
use crate::model::types::{Answer, ToolCall, Usage};
use crate::runs::{Environment, ModelChoice, RunRequest};
use sallyport_shim::wire::BlockedNotice;
use serde_json::json;
use std::collections::BTreeMap;

fn request() -> RunRequest {
    RunRequest {
        title: "t".into(),
        task: "mend it".into(),
        who: sallyport_policy::Who {
            user: "ada".into(),
            ..Default::default()
        },
        policies: Vec::new(),
        model: ModelChoice::Scripted { turns: "[]".into() },
        environment: Environment::default(),
        step_limit: Some(5),
    }
}

pub(super) struct Play {
    pub(super) state: State,
    pub(super) commands: Vec<Command>,
}

impl Play {
    pub(super) fn new() -> Self {
        let (state, commands) = begin("run-1", &request());
        Self { state, commands }
    }

    /// Up to the first question to the model.
    pub(super) fn ready() -> Self {
        let mut play = Self::new();
        let placeholders = BTreeMap::from([("TOKEN".to_owned(), "ph".to_owned())]);
        play.on(Event::SessionReady {
            ca_pem: "ca".into(),
            ssh_host_key: String::new(),
            placeholders,
            warnings: Vec::new(),
        });
        play.machine(1);
        play
    }

    pub(super) fn machine(&mut self, generation: u32) {
        let record = MachineRecord {
            id: "m".into(),
            driver: "fake".into(),
            facts: json!(generation),
        };
        self.on(Event::MachineReady { generation, record });
        self.on(Event::MachineSetUp {
            generation,
            warnings: Vec::new(),
        });
    }

    pub(super) fn on(&mut self, event: Event) -> &mut Self {
        assert!(
            expects(&self.state, &event),
            "{event:?} is not expected in {:?}",
            self.state.phase
        );
        self.commands = decide(&mut self.state, &event);
        if let Some(request) = self.asked() {
            assert_eq!(prompt::fault(&request.messages), None);
        }
        self
    }

    pub(super) fn answer(&mut self, calls: &[(&str, serde_json::Value)]) -> &mut Self {
        let calls = calls.iter().map(|(tool, input)| ToolCall {
            id: "same".into(),
            tool: (*tool).into(),
            input: input.clone(),
        });
        let answer = Answer {
            text: "hm".into(),
            calls: calls.collect(),
            ..Answer::default()
        };
        let step = self.state.step;
        self.on(Event::Inferred {
            step,
            attempt: 1,
            answer,
            wasted: Usage::default(),
        })
    }

    pub(super) fn result(&mut self, index: u32, text: &str) -> &mut Self {
        let step = self.state.step;
        self.on(Event::ToolFinished {
            step,
            index,
            text: text.into(),
            ok: true,
        })
    }

    pub(super) fn asked(&self) -> Option<&crate::model::types::ModelRequest> {
        self.commands.iter().find_map(|command| match command {
            Command::Infer { request, .. } => Some(request),
            _ => None,
        })
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.commands
            .iter()
            .map(Command::kind)
            .filter(|kind| *kind != "say")
            .collect()
    }

    pub(super) fn latest(&self) -> String {
        serde_json::to_string(self.asked().expect("the model is asked").messages.last().unwrap()).unwrap()
    }
}

pub(super) fn bash(command: &str) -> (&'static str, serde_json::Value) {
    ("bash", json!({"command": command}))
}

pub(super) fn refused(audit: u64) -> Event {
    let notice = BlockedNotice {
        id: format!("d-{audit}"),
        unix_ms: 1,
        what: "GET https://other.test/".into(),
        rule: "default".into(),
        reason: "no rule".into(),
        remedy: "call `request_access`".into(),
    };
    Event::Refused { audit, notice }
}
