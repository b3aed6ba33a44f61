//! Runs commands for the supervisor: each id once, output bounded, and an end that leaves nothing running.
mod background;
mod keep;
mod run;
mod transcript;

pub use background::Background;
pub use keep::keep;

use crate::reap::Reaper;
use crate::wire::channel::Channel;
use crate::wire::{ExecEnd, FromShim};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use transcript::{Piece, Transcript};

/// Time between asking a command's processes to end and killing them, in milliseconds.
pub const GRACE_MS: u64 = 2000;
/// Ended commands whose output is kept for telling it again.
const OUTPUTS_KEPT: usize = 32;
/// Ended commands whose end is kept, so that they are never run again.
const ENDS_KEPT: usize = 20_000;

/// What to run.
#[derive(Debug, Clone)]
pub struct Call {
    /// Stable id.
    pub id: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Time limit in milliseconds.
    pub timeout_ms: u64,
}

/// Every command that this shim has run.
#[derive(Debug, Clone)]
pub struct Commands {
    channel: Arc<Channel<FromShim>>,
    reaper: Reaper,
    helper: PathBuf,
    outputs: PathBuf,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<String, Arc<Running>>,
    ended: VecDeque<String>,
    count: u64,
}

/// One command; `state` is locked while anything about it is told, which keeps the order.
#[derive(Debug)]
struct Running {
    id: String,
    cancel: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    transcript: Transcript,
    /// Whether the supervisor of this session asked for it.
    told: bool,
    end: Option<ExecEnd>,
}

impl Commands {
    /// An empty table. `helper` is this program, which keeps each command; `outputs` is the folder for long outputs.
    pub fn new(channel: Arc<Channel<FromShim>>, reaper: Reaper, helper: PathBuf, outputs: PathBuf) -> Self {
        Commands {
            channel,
            reaper,
            helper,
            outputs,
            table: Arc::default(),
        }
    }

    /// Runs a command, or tells a known one again from its beginning.
    pub fn exec(&self, call: Call) {
        let mut table = lock(&self.table);
        if let Some(known) = table.by_id.get(&call.id).cloned() {
            drop(table);
            self.tell_again(&known);
            return;
        }
        table.count += 1;
        let path = self.outputs.join(format!("{}.log", table.count));
        let running = Arc::new(Running {
            id: call.id.clone(),
            cancel: Notify::new(),
            state: Mutex::new(State {
                transcript: Transcript::new(path),
                told: true,
                end: None,
            }),
        });
        table.by_id.insert(call.id.clone(), Arc::clone(&running));
        drop(table);
        self.channel.send(
            FromShim::Started {
                id: call.id.clone(),
                known: false,
            },
            Bytes::new(),
        );
        tokio::spawn(run::run(self.clone(), running, call));
    }

    /// Ends a command and all its descendants; an unknown or ended one is left alone.
    pub fn cancel(&self, id: &str) {
        if let Some(running) = lock(&self.table).by_id.get(id) {
            running.cancel.notify_one();
        }
    }

    /// Stops telling: the supervisor is another one than before, and asks for what it wants to know.
    pub fn new_session(&self) {
        for running in lock(&self.table).by_id.values() {
            lock(&running.state).told = false;
        }
    }

    /// Ids of the commands that have not ended.
    pub fn running(&self) -> Vec<String> {
        let table = lock(&self.table);
        let alive = table
            .by_id
            .values()
            .filter(|running| lock(&running.state).end.is_none());
        alive.map(|running| running.id.clone()).collect()
    }

    fn tell_again(&self, running: &Running) {
        let mut state = lock(&running.state);
        state.told = true;
        self.channel.send(
            FromShim::Started {
                id: running.id.clone(),
                known: true,
            },
            Bytes::new(),
        );
        for piece in state.transcript.head() {
            self.tell(&running.id, piece.clone());
        }
        if state.end.is_some() {
            self.tell_end(&running.id, &state);
        }
    }

    /// Takes a piece of output and tells it, unless it is kept back.
    fn wrote(&self, running: &Running, piece: Piece) {
        let mut state = lock(&running.state);
        if state.end.is_none()
            && let Some(now) = state.transcript.push(piece)
            && state.told
        {
            self.tell(&running.id, now);
        }
    }

    fn ended(&self, running: &Running, end: ExecEnd) {
        {
            let mut state = lock(&running.state);
            state.end = Some(end);
            if state.told {
                self.tell_end(&running.id, &state);
            }
        }
        let mut table = lock(&self.table);
        table.ended.push_back(running.id.clone());
        if let Some(index) = table.ended.len().checked_sub(OUTPUTS_KEPT + 1)
            && let Some(old) = table.ended.get(index).and_then(|id| table.by_id.get(id))
        {
            lock(&old.state).transcript.forget();
        }
        if table.ended.len() > ENDS_KEPT
            && let Some(oldest) = table.ended.pop_front()
        {
            table.by_id.remove(&oldest);
        }
    }

    fn tell_end(&self, id: &str, state: &State) {
        let Some(end) = state.end.clone() else { return };
        for piece in state.transcript.rest() {
            self.tell(id, piece);
        }
        let full_output = state.transcript.full_output();
        self.channel.send(
            FromShim::Exited {
                id: id.to_owned(),
                end,
                full_output,
            },
            Bytes::new(),
        );
    }

    fn tell(&self, id: &str, (stream, bytes): Piece) {
        self.channel.send(
            FromShim::Output {
                id: id.to_owned(),
                stream,
            },
            bytes,
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
