//! The agent loop, pure: `decide` takes what happened and says what to do. Whoever hosts it journals both.
mod calls;
pub mod command;
pub mod event;
mod flow;
pub mod heal;
pub mod prompt;
pub mod ssh;
pub mod state;
pub mod tools;

#[cfg(test)]
mod tests;

use crate::conversation::{Outcome, What};
use calls::{answered, current, drop_calls, next_call, settle_call, waits_for_machine};
use command::Command;
use event::{Asker, Event};
use flow::{ask, close, create_machine, infer_failed, note, say, set_up, think, warn};
use state::{Phase, SessionFacts, State};

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
            ssh_host_key,
            placeholders,
            warnings,
        } => {
            state.session = Some(SessionFacts {
                ca_pem: ca_pem.clone(),
                ssh_host_key: ssh_host_key.clone(),
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
