//! A tool call in the machine: run at most once under its id, its output shown as it comes.
use crate::activity::output::{Clip, Lossy};
use crate::activity::{Context, machine};
use crate::conversation::store::Piece;
use crate::gateway::GatewayError;
use crate::machine::{ExecCall, ExecOutcome, Machine, MachineError, MachineRecord, OutputPiece};
use crate::model::types::ToolCall;
use crate::run::event::Event;
use crate::run::tools::Tool;
use sallyport_gateway::control::types::AuditQuery;
use sallyport_shim::wire::{ExecEnd, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Time that the machine has to say how a command ended, beyond the command's own limit.
const GRACE: Duration = Duration::from_secs(60);
/// Longest wait for refusals that are on their way.
const HEAR: Duration = Duration::from_secs(1);
/// Most bytes read of a file.
const READ_BYTES: u64 = 256 << 10;
/// Where commands run.
const HOME: &str = "/home/agent";

/// One call.
pub(super) struct Job {
    pub(super) step: u32,
    pub(super) attempt: u32,
    pub(super) index: u32,
    pub(super) record: MachineRecord,
    pub(super) generation: u32,
    pub(super) exec: String,
    pub(super) call: ToolCall,
}

/// Carries out the call. A machine that is gone is an event of its own: the run decides what that means.
pub(super) async fn run(context: &Arc<Context>, job: &Job, cancelled: &CancellationToken) -> Event {
    let outcome = match machine::connect(context, &job.record, job.generation).await {
        Ok(machine) => carry_out(context, job, &machine, cancelled).await,
        Err(fault) => Err(fault),
    };
    let (text, ok) = match outcome {
        Ok(result) => result,
        Err(MachineError::Gone(_)) => {
            return Event::MachineLost {
                generation: job.generation,
                why: "it is not running any more".into(),
            };
        }
        Err(MachineError::Passing { what, .. }) => (
            format!("the machine cannot be reached ({what}); the call may have had effects"),
            false,
        ),
        Err(fault) => (fault.to_string(), false),
    };
    Event::ToolFinished {
        step: job.step,
        index: job.index,
        text,
        ok,
    }
}

async fn carry_out(
    context: &Context,
    job: &Job,
    machine: &Machine,
    cancelled: &CancellationToken,
) -> Result<(String, bool), MachineError> {
    let hands = &context.hands;
    match Tool::read(&job.call) {
        Ok(Tool::Bash { command, timeout_ms }) => {
            let call = ExecCall {
                id: job.exec.clone(),
                argv: vec!["bash".into(), "-c".into(), command],
                cwd: HOME.into(),
                env: BTreeMap::new(),
                timeout_ms,
            };
            let limit = Duration::from_millis(timeout_ms) + GRACE;
            let work = hands.ask_machine(|| exec(context, job, machine, &call));
            let outcome = tokio::select! {
                biased;
                () = cancelled.cancelled() => None,
                outcome = tokio::time::timeout(limit, work) => outcome.ok(),
            };
            match outcome {
                Some(outcome) => {
                    hear(context).await;
                    outcome
                }
                None => {
                    machine.cancel(&job.exec).await?;
                    let text = "the machine did not say in time how the command ended; it was cancelled and may have had effects";
                    Ok((text.into(), false))
                }
            }
        }
        Ok(Tool::ReadFile { path }) => {
            let (bytes, size) = hands
                .ask_machine(|| machine.read_file(&path, 0, READ_BYTES))
                .await?;
            let mut text = String::from_utf8_lossy(&bytes).into_owned();
            if size > bytes.len() as u64 {
                text.push_str(&format!(
                    "\n[the first {} of {size} bytes; use bash for the rest]",
                    bytes.len()
                ));
            }
            Ok((text, true))
        }
        Ok(Tool::WriteFile { path, content }) => {
            hands
                .ask_machine(|| machine.write_file(&path, content.as_bytes(), 0o644))
                .await?;
            Ok((format!("wrote {} bytes to {path}", content.len()), true))
        }
        Ok(other) => Err(MachineError::Call(format!(
            "`{other:?}` is no tool of the machine"
        ))),
        Err(text) => Err(MachineError::Call(text)),
    }
}

async fn exec(
    context: &Context,
    job: &Job,
    machine: &Machine,
    call: &ExecCall,
) -> Result<(String, bool), MachineError> {
    let (pieces, output) = mpsc::channel(64);
    let (outcome, clip) = tokio::join!(machine.exec(call, pieces), show(context, job, output));
    let outcome = outcome?;
    let (end, ok) = ending(&outcome, call.timeout_ms);
    let mut text = clip.text();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&end);
    Ok((text, ok))
}

/// Shows what was not shown before: a command found again after a restart tells its output from the beginning.
async fn show(context: &Context, job: &Job, mut output: mpsc::Receiver<OutputPiece>) -> Clip {
    let conversations = &context.hands.conversations;
    let (mut out, mut err, mut clip) = (Lossy::default(), Lossy::default(), Clip::default());
    let mut taken = 0u64;
    let shown = conversations
        .taken(&context.run, &job.call.id)
        .await
        .ok()
        .flatten()
        .unwrap_or(0);
    while let Some(piece) = output.recv().await {
        taken += piece.bytes.len() as u64;
        let text = match piece.stream {
            Stream::Out => out.push(&piece.bytes),
            Stream::Err => err.push(&piece.bytes),
        };
        clip.push(&text);
        if text.is_empty() || taken <= shown {
            continue;
        }
        let (step, attempt, call) = (job.step, job.attempt, job.call.id.clone());
        // The result holds the output too: a piece that cannot be shown now is no loss.
        if let Err(fault) = conversations
            .output(
                &context.run,
                Piece {
                    step,
                    attempt,
                    call,
                    taken,
                    text,
                },
            )
            .await
        {
            tracing::warn!(run = %context.run, %fault, "a piece of output is not shown");
        }
    }
    clip
}

/// Waits a moment until the run has heard what the gateway refused to this command, so that the next step knows it.
async fn hear(context: &Context) {
    let query = AuditQuery {
        session: Some(context.run.clone()),
        limit: Some(1),
        ..AuditQuery::default()
    };
    let heard = async {
        let newest = context
            .hands
            .door
            .audit(&query)
            .await?
            .first()
            .map_or(0, |record| record.sequence);
        // The sender lives as long as the hands do.
        let _ = context
            .hands
            .heard
            .subscribe()
            .wait_for(|heard| *heard >= newest)
            .await;
        Ok::<(), GatewayError>(())
    };
    // A refusal that comes later is told with the step after.
    let _ = tokio::time::timeout(HEAR, heard).await;
}

fn ending(outcome: &ExecOutcome, timeout_ms: u64) -> (String, bool) {
    let (mut text, ok) = match &outcome.end {
        ExecEnd::Code { code } => (format!("[exit code {code}]"), *code == 0),
        ExecEnd::Signal { signal } => (format!("[ended by signal {signal}]"), false),
        ExecEnd::TimedOut => (
            format!("[stopped at the time limit of {} s]", timeout_ms / 1000),
            false,
        ),
        ExecEnd::Cancelled => ("[cancelled]".into(), false),
        ExecEnd::NotStarted { error } => (format!("[not started: {error}]"), false),
        ExecEnd::Lost => (
            "[interrupted: the machine's helper was restarted; the command may have had effects]".into(),
            false,
        ),
    };
    if let Some(path) = &outcome.full_output {
        text.push_str(&format!("\n[the whole output is in {path}]"));
    }
    (text, ok)
}
