//! An answer and its calls: one after another, each with exactly one result.
use crate::conversation::{Outcome, What};
use crate::model::types::{Answer, Message, Part, Role, ToolCall};
use crate::run::command::Command;
use crate::run::flow::{close, say, think, to_model};
use crate::run::state::{CallState, Phase, State};
use crate::run::tools::{self, Next, Tool};

/// Answers without a call in a row before the run gives up.
const SILENT: u32 = 3;

pub(super) fn waits_for_machine(state: &State) -> bool {
    current(state)
        .and_then(|index| state.calls.get(index))
        .is_some_and(|call| tools::in_machine(&call.call.tool))
}

pub(super) fn answered(state: &mut State, answer: &Answer, commands: &mut Vec<Command>) {
    let mut parts = Vec::new();
    if !answer.text.trim().is_empty() {
        parts.push(Part::Text {
            text: answer.text.clone(),
        });
        say(
            state,
            What::Said {
                text: answer.text.clone(),
            },
            commands,
        );
    }
    state.calls.clear();
    for (index, call) in answer.calls.iter().enumerate() {
        // The provider's own id may come again in a later answer.
        let call = ToolCall {
            id: format!("s{}c{index}", state.step),
            ..call.clone()
        };
        let (id, tool, input) = (call.id.clone(), call.tool.clone(), call.input.clone());
        say(
            state,
            What::Call {
                call: id,
                tool,
                input,
            },
            commands,
        );
        parts.push(Part::Call { call: call.clone() });
        state.calls.push(CallState { call, result: None });
    }
    if parts.is_empty() {
        parts.push(Part::Text {
            text: "(no answer)".into(),
        });
        say(
            state,
            What::Said {
                text: "(no answer)".into(),
            },
            commands,
        );
    }
    state.history.push(Message {
        role: Role::Assistant,
        parts,
    });
    if state.calls.is_empty() {
        silent(state, answer.cut, commands)
    } else {
        state.silent = 0;
        next_call(state, commands);
    }
}

pub(super) fn silent(state: &mut State, cut: bool, commands: &mut Vec<Command>) {
    state.silent += 1;
    if state.silent >= SILENT && state.inbox.said.is_empty() {
        let text =
            format!("the model called no tool {SILENT} times in a row and did not say that it is done");
        return close(state, Outcome::Failed, text, commands);
    }
    let text = if cut {
        "Your answer was cut at its length limit. Go on, in shorter pieces."
    } else {
        "You called no tool. Go on with one, or call `done` if the task is finished or cannot be."
    };
    to_model(state, Part::Text { text: text.into() });
    think(state, commands);
}

/// The first call without a result.
pub(super) fn current(state: &State) -> Option<usize> {
    state.calls.iter().position(|call| call.result.is_none())
}

/// Carries out the next call, or ends the step.
pub(super) fn next_call(state: &mut State, commands: &mut Vec<Command>) {
    while let Some(index) = current(state) {
        state.phase = Phase::Acting;
        let call = state.calls[index].call.clone();
        match tools::plan(state, index, &call) {
            Next::Do(command) => return commands.push(*command),
            Next::Told { text, ok } => settle_call(state, text, ok, commands),
        }
    }
    finish_step(state, commands);
}

pub(super) fn settle_call(state: &mut State, text: String, ok: bool, commands: &mut Vec<Command>) {
    let Some(index) = current(state) else { return };
    let call = state.calls[index].call.id.clone();
    state.calls[index].result = Some((text.clone(), ok));
    say(state, What::Result { call, text, ok }, commands);
}

/// Gives the running call and those after it their results, so that the history stays well-formed.
pub(super) fn drop_calls(state: &mut State, running: &str, waiting: &str, commands: &mut Vec<Command>) {
    let mut text = running;
    if state.phase == Phase::Acting {
        while current(state).is_some() {
            settle_call(state, text.into(), false, commands);
            text = waiting;
        }
    }
}

pub(super) fn finish_step(state: &mut State, commands: &mut Vec<Command>) {
    let calls = std::mem::take(&mut state.calls);
    let done = calls.iter().rev().find_map(|call| match Tool::read(&call.call) {
        Ok(Tool::Done { summary, success }) => Some((summary, success)),
        _ => None,
    });
    for CallState { call, result } in calls {
        let (text, ok) = result.unwrap_or_default();
        let text = if text.is_empty() { "(empty)".into() } else { text };
        to_model(
            state,
            Part::Result {
                call: call.id,
                text,
                ok,
            },
        );
    }
    match done {
        Some((summary, success)) if state.inbox.said.is_empty() => {
            let outcome = if success { Outcome::Done } else { Outcome::Failed };
            close(state, outcome, summary, commands);
        }
        _ => think(state, commands),
    }
}
