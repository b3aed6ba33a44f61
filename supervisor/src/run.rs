//! The agent loop, pure: `decide` takes what happened and says what to do. Whoever hosts it journals both.
pub mod command;
pub mod event;
pub mod heal;
pub mod prompt;
pub mod state;
pub mod tools;

#[cfg(test)]
mod tests;

use crate::conversation::What;
use crate::machine::MachineSpec;
use crate::model::types::{Answer, Message, Part, Role, ToolCall};
use crate::runs::Outcome;
use command::Command;
use event::{Asker, Event};
use state::{CallState, Phase, SessionFacts, State};
use tools::{Next, Tool};

/// Steps where the request names no limit.
const STEP_LIMIT: u32 = 200;
/// Machines made for one run before it gives up.
const MACHINES: u32 = 4;
/// Rounds of attempts at one inference before the run gives up.
const INFER_ROUNDS: u32 = 4;
/// Wait before the second round, in milliseconds; doubled each time.
const ROUND_MS: u64 = 30_000;
/// Answers without a call in a row before the run gives up.
const SILENT: u32 = 3;

/// Begins a run.
pub fn begin(run: &str, request: &crate::runs::RunRequest) -> (State, Vec<Command>) {
    let state = State::new(run, request);
    let mut commands = Vec::new();
    let user = request.who.user.clone();
    say(
        &state,
        What::Person {
            user,
            text: request.task.clone(),
        },
        &mut commands,
    );
    commands.push(Command::OpenSession);
    (state, commands)
}

/// Whether the event means anything to this state. What does not is dropped, and never journaled: an answer that comes
/// twice, the result of a cancelled call, a refusal seen before.
pub fn expects(state: &State, event: &Event) -> bool {
    if state.is_over() {
        return false;
    }
    match event {
        Event::Started { .. } => false,
        Event::SessionReady { .. } => state.phase == Phase::Opening,
        Event::MachineReady { generation, .. } => {
            state.phase == Phase::Creating && *generation == state.machine.generation
        }
        Event::MachineSetUp { generation, .. } => {
            state.phase == Phase::SettingUp && *generation == state.machine.generation
        }
        Event::MachineLost { generation, .. } => {
            !state.is_closing() && *generation == state.machine.generation && state.machine.record.is_some()
        }
        Event::PreparationFailed { .. } => {
            matches!(state.phase, Phase::Opening | Phase::Creating | Phase::SettingUp)
        }
        Event::Inferred { step, .. } | Event::InferFailed { step, .. } => {
            state.phase == Phase::Thinking && *step == state.step
        }
        Event::ToolFinished { step, index, .. }
        | Event::AccessAnswered {
            asker: Asker::Tool { step, index },
            ..
        } => state.phase == Phase::Acting && *step == state.step && current(state) == Some(*index as usize),
        Event::AccessAnswered {
            asker: Asker::CommandLine { .. },
            ..
        } => !state.is_closing(),
        Event::AccessAsked { .. } | Event::PersonSaid { .. } | Event::StopAsked { .. } => !state.is_closing(),
        Event::Refused { audit, .. } => *audit > state.audit_seen,
        Event::TimerFired { id } => matches!(&state.phase, Phase::Waiting { timer } if timer == id),
        Event::Closed { .. } => matches!(state.phase, Phase::Closing { .. }),
    }
}

/// Takes an event that the state [`expects`] and says what to do. Total: an unexpected event changes nothing.
pub fn decide(state: &mut State, event: &Event) -> Vec<Command> {
    let mut commands = Vec::new();
    if expects(state, event) {
        apply(state, event, &mut commands);
    }
    commands
}

fn apply(state: &mut State, event: &Event, commands: &mut Vec<Command>) {
    match event {
        Event::Started { .. } => {}
        Event::SessionReady {
            ca_pem,
            placeholders,
            warnings,
        } => {
            state.session = Some(SessionFacts {
                ca_pem: ca_pem.clone(),
                placeholders: placeholders.clone(),
            });
            warn(state, warnings, commands);
            create_machine(state, commands);
        }
        Event::MachineReady { record, .. } => {
            state.machine.record = Some(record.clone());
            state.phase = Phase::SettingUp;
            set_up(state, commands);
        }
        Event::MachineSetUp { warnings, .. } => {
            warn(state, warnings, commands);
            if let Some(why) = state.machine.lost.take() {
                let news = format!(
                    "Your machine was lost ({why}). You have a new one: files and programs of the old one are gone, \
                     what it had already sent out stands."
                );
                note(state, news.clone(), commands);
                state.inbox.news.push(news);
            }
            think(state, commands);
        }
        Event::MachineLost { why, .. } => machine_lost(state, why, commands),
        Event::PreparationFailed { why, .. } => close(state, Outcome::Failed, why.clone(), commands),
        Event::Inferred {
            attempt,
            answer,
            wasted,
            ..
        } => {
            state.usage.add(*wasted);
            state.usage.add(answer.usage);
            state.failures = 0;
            state.settled = (state.step, *attempt);
            answered(state, answer, commands);
        }
        Event::InferFailed {
            why, passing, wasted, ..
        } => {
            // Entries written from here on must outlive the rewind of this attempt: `settled` stays.
            state.usage.add(*wasted);
            infer_failed(state, why, *passing, commands);
        }
        Event::ToolFinished { text, ok, .. } => {
            settle_call(state, text.clone(), *ok, commands);
            next_call(state, commands);
        }
        Event::AccessAsked { id, wanted, why } => commands.push(Command::RequestAccess {
            asker: Asker::CommandLine { id: id.clone() },
            record: state.machine.record.clone(),
            wanted: wanted.clone(),
            why: why.clone(),
        }),
        Event::AccessAnswered {
            asker,
            wanted,
            why,
            granted,
            text,
        } => {
            let (wanted, why, told) = (wanted.clone(), why.clone(), text.clone());
            say(
                state,
                What::Access {
                    wanted,
                    why,
                    granted: *granted,
                    text: told,
                },
                commands,
            );
            if matches!(asker, Asker::Tool { .. }) {
                settle_call(state, text.clone(), *granted, commands);
                next_call(state, commands);
            }
        }
        Event::Refused { audit, notice } => {
            state.audit_seen = *audit;
            state.refusals = state.refusals.saturating_add(1);
            heal::receive(&mut state.inbox, notice);
            say(
                state,
                What::Refused {
                    notice: notice.clone(),
                },
                commands,
            );
            if !state.is_closing() {
                commands.push(Command::Notify {
                    notice: notice.clone(),
                });
            }
        }
        Event::PersonSaid { user, text } => {
            state.inbox.said.push((user.clone(), text.clone()));
            say(
                state,
                What::Person {
                    user: user.clone(),
                    text: text.clone(),
                },
                commands,
            );
        }
        Event::StopAsked { user } => {
            let why = format!("stopped by {user}; it may have had effects");
            drop_calls(state, &why, "stopped before it began", commands);
            close(state, Outcome::Stopped, format!("stopped by {user}"), commands);
        }
        Event::TimerFired { .. } => ask(state, commands),
        Event::Closed { notes } => {
            for text in notes {
                note(state, text.clone(), commands);
            }
            if let Phase::Closing { outcome, text } = state.phase.clone() {
                say(
                    state,
                    What::Ended {
                        outcome,
                        text: text.clone(),
                    },
                    commands,
                );
                commands.push(Command::End {
                    outcome,
                    text: text.clone(),
                });
                state.phase = Phase::Ended { outcome, text };
            }
        }
    }
}

fn create_machine(state: &mut State, commands: &mut Vec<Command>) {
    if state.machine.generation >= MACHINES {
        let text = format!(
            "the machine was lost {MACHINES} times; the last one: {}",
            lost_text(state)
        );
        return close(state, Outcome::Failed, text, commands);
    }
    state.machine.generation += 1;
    let generation = state.machine.generation;
    let id = if generation == 1 {
        state.run.clone()
    } else {
        format!("{}-{generation}", state.run)
    };
    state.phase = Phase::Creating;
    let spec = MachineSpec {
        id,
        binds: state.request.environment.binds.clone(),
    };
    commands.push(Command::CreateMachine { generation, spec });
}

fn lost_text(state: &State) -> &str {
    state.machine.lost.as_deref().unwrap_or("unknown")
}

fn set_up(state: &State, commands: &mut Vec<Command>) {
    let (Some(session), Some(record)) = (&state.session, &state.machine.record) else {
        return;
    };
    let mut env = tools::environment(&state.run);
    env.extend(state.request.environment.env.clone());
    env.extend(session.placeholders.clone());
    commands.push(Command::SetupMachine {
        generation: state.machine.generation,
        record: record.clone(),
        ca_pem: session.ca_pem.clone(),
        env,
        files: state.request.environment.files.clone(),
    });
}

fn machine_lost(state: &mut State, why: &str, commands: &mut Vec<Command>) {
    state.machine.record = None;
    state.machine.lost = Some(why.into());
    note(state, format!("the machine is gone: {why}"), commands);
    match state.phase {
        Phase::SettingUp => {
            commands.push(Command::Cancel);
            create_machine(state, commands);
        }
        Phase::Acting if waits_for_machine(state) => {
            commands.push(Command::Cancel);
            let running = format!("interrupted: the machine is gone ({why}); the call may have had effects");
            drop_calls(state, &running, "not run: the machine is gone", commands);
            next_call(state, commands);
        }
        // The model, or the gateway, is being asked: its answer comes first, then a new machine is made.
        _ => {}
    }
}

fn waits_for_machine(state: &State) -> bool {
    current(state)
        .and_then(|index| state.calls.get(index))
        .is_some_and(|call| tools::in_machine(&call.call.tool))
}

/// Begins the next step, or a machine first where there is none, or the end.
fn think(state: &mut State, commands: &mut Vec<Command>) {
    if state.machine.record.is_none() {
        return create_machine(state, commands);
    }
    let limit = state.request.step_limit.unwrap_or(STEP_LIMIT);
    if state.step >= limit {
        return close(
            state,
            Outcome::Failed,
            format!("not done after {limit} steps, which is the limit"),
            commands,
        );
    }
    state.step += 1;
    let texts = heal::tell(&mut state.inbox);
    for text in texts {
        to_model(state, Part::Text { text });
    }
    ask(state, commands);
}

fn ask(state: &mut State, commands: &mut Vec<Command>) {
    state.phase = Phase::Thinking;
    commands.push(Command::Infer {
        step: state.step,
        request: prompt::request(state),
    });
}

/// Adds to the message of the user at the end of the history, which begins one after the assistant's.
fn to_model(state: &mut State, part: Part) {
    match state.history.last_mut() {
        Some(message) if message.role == Role::User => message.parts.push(part),
        _ => state.history.push(Message {
            role: Role::User,
            parts: vec![part],
        }),
    }
}

fn answered(state: &mut State, answer: &Answer, commands: &mut Vec<Command>) {
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

fn silent(state: &mut State, cut: bool, commands: &mut Vec<Command>) {
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
fn current(state: &State) -> Option<usize> {
    state.calls.iter().position(|call| call.result.is_none())
}

/// Carries out the next call, or ends the step.
fn next_call(state: &mut State, commands: &mut Vec<Command>) {
    while let Some(index) = current(state) {
        state.phase = Phase::Acting;
        let call = state.calls[index].call.clone();
        match tools::plan(state, index, &call) {
            Next::Do(command) => return commands.push(command),
            Next::Told { text, ok } => settle_call(state, text, ok, commands),
        }
    }
    finish_step(state, commands);
}

fn settle_call(state: &mut State, text: String, ok: bool, commands: &mut Vec<Command>) {
    let Some(index) = current(state) else { return };
    let call = state.calls[index].call.id.clone();
    state.calls[index].result = Some((text.clone(), ok));
    say(state, What::Result { call, text, ok }, commands);
}

/// Gives the running call and those after it their results, so that the history stays well-formed.
fn drop_calls(state: &mut State, running: &str, waiting: &str, commands: &mut Vec<Command>) {
    let mut text = running;
    if state.phase == Phase::Acting {
        while current(state).is_some() {
            settle_call(state, text.into(), false, commands);
            text = waiting;
        }
    }
}

fn finish_step(state: &mut State, commands: &mut Vec<Command>) {
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

fn infer_failed(state: &mut State, why: &str, passing: bool, commands: &mut Vec<Command>) {
    state.failures += 1;
    if !passing || state.failures >= INFER_ROUNDS {
        return close(
            state,
            Outcome::Failed,
            format!("the model cannot be asked: {why}"),
            commands,
        );
    }
    let ms = ROUND_MS << (state.failures - 1);
    let timer = format!("infer-{}-{}", state.step, state.failures);
    note(
        state,
        format!(
            "the model cannot be asked: {why}; trying again in {} s",
            ms / 1000
        ),
        commands,
    );
    commands.push(Command::Timer {
        id: timer.clone(),
        ms,
    });
    state.phase = Phase::Waiting { timer };
}

fn close(state: &mut State, outcome: Outcome, text: String, commands: &mut Vec<Command>) {
    state.phase = Phase::Closing { outcome, text };
    state.machine.record = None;
    commands.push(Command::Cancel);
    commands.push(Command::CloseAll);
}

fn warn(state: &State, warnings: &[String], commands: &mut Vec<Command>) {
    for warning in warnings {
        note(state, warning.clone(), commands);
    }
}

fn note(state: &State, text: String, commands: &mut Vec<Command>) {
    say(state, What::Note { text }, commands);
}

fn say(state: &State, what: What, commands: &mut Vec<Command>) {
    let (step, attempt) = state.settled;
    commands.push(Command::Say { step, attempt, what });
}
