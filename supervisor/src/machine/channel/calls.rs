//! Which call waits for which answer. No I/O; everything that a machine could make grow is bounded.
use super::super::{ExecOutcome, OutputPiece};
use bytes::Bytes;
use sallyport_shim::wire::{ExecEnd, FromShim, Stream, ToShim};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Most output bytes of one command that are passed on; an honest shim sends less than a third of it.
const OUTPUT_BYTES: usize = 1 << 20;
/// A piece counts as at least this much.
const PIECE_COST: usize = 64;

/// What comes of a file call: content and size, or the machine's own words.
pub(super) type FileAnswer = Result<(Bytes, u64), String>;

/// What a waiting `exec` is told.
#[derive(Debug)]
pub(super) enum Event {
    /// A piece of output.
    Output(OutputPiece),
    /// The end; nothing comes after it.
    Ended(ExecOutcome),
}

/// All open calls of one machine.
#[derive(Debug, Default)]
pub(super) struct Calls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    boot: Option<String>,
    execs: HashMap<String, Exec>,
    files: HashMap<String, oneshot::Sender<FileAnswer>>,
    ready: VecDeque<oneshot::Sender<Vec<String>>>,
    last_setup: Option<ToShim>,
    last_credentials: Option<ToShim>,
    count: u64,
}

/// The calls for one command id: each waits for its own `Started`, so that what was told to an earlier one is not
/// taken for its output.
#[derive(Debug, Default)]
struct Exec {
    asked: VecDeque<Watcher>,
    told: Option<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    events: mpsc::UnboundedSender<Event>,
    room: usize,
}

impl Calls {
    /// Waits for `Ready` after a setup, which is kept for a restarted shim.
    pub(super) fn expect_ready(&self, setup: ToShim) -> oneshot::Receiver<Vec<String>> {
        let (tell, told) = oneshot::channel();
        let mut state = self.state();
        state.ready.push_back(tell);
        state.last_setup = Some(setup);
        told
    }

    /// Waits for a command's output and end.
    pub(super) fn expect_exec(&self, id: &str) -> mpsc::UnboundedReceiver<Event> {
        let (events, told) = mpsc::unbounded_channel();
        let watcher = Watcher {
            events,
            room: OUTPUT_BYTES,
        };
        self.state()
            .execs
            .entry(id.to_owned())
            .or_default()
            .asked
            .push_back(watcher);
        told
    }

    /// Waits for a file call; answers its id.
    pub(super) fn expect_file(&self) -> (String, oneshot::Receiver<FileAnswer>) {
        let (tell, told) = oneshot::channel();
        let mut state = self.state();
        state.count += 1;
        let id = format!("file-{}", state.count);
        state.files.insert(id.clone(), tell);
        (id, told)
    }

    /// Keeps what the agent may know of its credentials, for a restarted shim.
    pub(super) fn keep_credentials(&self, told: ToShim) {
        self.state().last_credentials = Some(told);
    }

    /// What to repeat when a shim was restarted, in order.
    pub(super) fn to_tell_again(&self) -> Vec<ToShim> {
        let state = self.state();
        let told = state.last_setup.iter().chain(&state.last_credentials);
        told.cloned().collect()
    }

    /// Takes note of the shim's boot; answers whether it is a new one. Commands of the old one are lost.
    pub(super) fn new_boot(&self, boot: &str) -> bool {
        let mut state = self.state();
        let restarted = match state.boot.replace(boot.to_owned()) {
            Some(old) => old != boot,
            // First connection: what is queued was meant for this one.
            None => false,
        };
        if restarted {
            for (_, exec) in state.execs.drain() {
                for watcher in exec.told.into_iter().chain(exec.asked) {
                    watcher.end(ExecOutcome {
                        end: ExecEnd::Lost,
                        full_output: None,
                    });
                }
            }
            state.files.clear();
        }
        restarted
    }

    /// Ends every call: the machine is gone.
    pub(super) fn all_gone(&self) {
        let mut state = self.state();
        state.execs.clear();
        state.files.clear();
        state.ready.clear();
    }

    /// Brings an answer to its call; one that nobody waits for is dropped.
    pub(super) fn deliver(&self, message: FromShim, body: Bytes) {
        let mut state = self.state();
        // A receiver that is gone gave the call up; nothing is lost with it.
        match message {
            FromShim::Started { id, .. } => {
                if let Some(exec) = state.execs.get_mut(&id)
                    && let Some(next) = exec.asked.pop_front()
                {
                    exec.told = Some(next);
                }
            }
            FromShim::Output { id, stream } => {
                if let Some(watcher) = state.execs.get_mut(&id).and_then(|exec| exec.told.as_mut()) {
                    watcher.output(stream, body);
                }
            }
            FromShim::Exited { id, end, full_output } => {
                let Some(exec) = state.execs.get_mut(&id) else {
                    return;
                };
                if let Some(watcher) = exec.told.take() {
                    watcher.end(ExecOutcome { end, full_output });
                }
                if exec.asked.is_empty() {
                    state.execs.remove(&id);
                }
            }
            FromShim::File { id, error, size } => {
                if let Some(waiting) = state.files.remove(&id) {
                    let answer = error.map_or(Ok((body, size)), Err);
                    let _given_up = waiting.send(answer);
                }
            }
            FromShim::Ready { warnings } => {
                if let Some(waiting) = state.ready.pop_front() {
                    let _given_up = waiting.send(warnings);
                }
            }
            FromShim::Hello { .. } | FromShim::Request { .. } | FromShim::AskCredentials => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    fn output(&mut self, stream: Stream, bytes: Bytes) {
        let cost = bytes.len().max(PIECE_COST);
        if self.room == 0 {
            return;
        }
        let piece = if cost <= self.room {
            self.room -= cost;
            OutputPiece { stream, bytes }
        } else {
            self.room = 0;
            OutputPiece {
                stream,
                bytes: Bytes::from_static(b"\n[the machine sent more than it should; cut here]\n"),
            }
        };
        let _given_up = self.events.send(Event::Output(piece));
    }

    fn end(self, outcome: ExecOutcome) {
        let _given_up = self.events.send(Event::Ended(outcome));
    }
}
