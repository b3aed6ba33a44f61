//! The steps between answers: machine, question, end.
use crate::conversation::{Outcome, What};
use crate::machine::MachineSpec;
use crate::model::types::{Message, Part, Role};
use crate::run::command::Command;
use crate::run::state::{Phase, State};
use crate::run::{heal, prompt, ssh, tools};

/// Steps where the request names no limit.
const STEP_LIMIT: u32 = 200;
/// Machines made for one run before it gives up.
pub(super) const MACHINES: u32 = 4;
/// Rounds of attempts at one inference before the run gives up.
pub(super) const INFER_ROUNDS: u32 = 4;
/// Wait before the second round, in milliseconds; doubled each time.
pub(super) const ROUND_MS: u64 = 30_000;

pub(super) fn create_machine(state: &mut State, commands: &mut Vec<Command>) {
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

pub(super) fn lost_text(state: &State) -> &str {
    state.machine.lost.as_deref().unwrap_or("unknown")
}

pub(super) fn set_up(state: &State, commands: &mut Vec<Command>) {
    let (Some(session), Some(record)) = (&state.session, &state.machine.record) else {
        return;
    };
    let mut env = tools::environment(&state.run);
    env.extend(state.request.environment.env.clone());
    env.extend(session.placeholders.clone());
    let mut files = ssh::files(session);
    files.extend(state.request.environment.files.clone());
    commands.push(Command::SetupMachine {
        generation: state.machine.generation,
        record: record.clone(),
        ca_pem: session.ca_pem.clone(),
        env,
        files,
    });
}

/// Begins the next step, or a machine first where there is none, or the end.
pub(super) fn think(state: &mut State, commands: &mut Vec<Command>) {
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

pub(super) fn ask(state: &mut State, commands: &mut Vec<Command>) {
    state.phase = Phase::Thinking;
    commands.push(Command::Infer {
        step: state.step,
        request: prompt::request(state),
    });
}

/// Adds to the message of the user at the end of the history, which begins one after the assistant's.
pub(super) fn to_model(state: &mut State, part: Part) {
    match state.history.last_mut() {
        Some(message) if message.role == Role::User => message.parts.push(part),
        _ => state.history.push(Message {
            role: Role::User,
            parts: vec![part],
        }),
    }
}

pub(super) fn infer_failed(state: &mut State, why: &str, passing: bool, commands: &mut Vec<Command>) {
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

pub(super) fn close(state: &mut State, outcome: Outcome, text: String, commands: &mut Vec<Command>) {
    state.phase = Phase::Closing { outcome, text };
    state.machine.record = None;
    commands.push(Command::Cancel);
    commands.push(Command::CloseAll);
}

pub(super) fn warn(state: &State, warnings: &[String], commands: &mut Vec<Command>) {
    for warning in warnings {
        note(state, warning.clone(), commands);
    }
}

pub(super) fn note(state: &State, text: String, commands: &mut Vec<Command>) {
    say(state, What::Note { text }, commands);
}

pub(super) fn say(state: &State, what: What, commands: &mut Vec<Command>) {
    let (step, attempt) = state.settled;
    commands.push(Command::Say { step, attempt, what });
}
