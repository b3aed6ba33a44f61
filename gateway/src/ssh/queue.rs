//! What waits to be taken by an agent, bounded, without standing still where both sides wait for each other.
//!
//! The libraries on both sides stop reading a connection while one of its channels is full. A command that answers what it
//! reads would then wait for the agent to take its answers, and the agent for the command to take its input. So the bound
//! is kept only while input flows: where input waits, answers are taken in all the same, up to a much higher bound.
use super::stop::Cut;
use bytes::Bytes;
use russh::Sig;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Bytes that wait while input flows (1 MiB). Beyond: the upstream is not read.
const SOFT: usize = 1 << 20;
/// Bytes that wait while input waits too (64 MiB). Beyond: the channel is ended.
const HARD: usize = 64 << 20;

/// What goes to the agent, in order.
#[derive(Debug)]
pub(super) enum Back {
    Output(Bytes),
    Error(Bytes),
    Eof,
    Exited(u32),
    Killed {
        signal: Sig,
        core_dumped: bool,
        message: String,
    },
}

/// The queue's state, seen from both ends.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: AtomicUsize,
    /// Changes when something was taken, or when input began to wait.
    moved: watch::Sender<bool>,
}

/// The end at which things are put in.
pub(super) struct Puts<'a> {
    queue: &'a Queue,
    sender: UnboundedSender<Back>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            moved: watch::Sender::new(false),
        }
    }

    /// Both ends; made once.
    pub(super) fn ends(&self) -> (Puts<'_>, UnboundedReceiver<Back>) {
        let (sender, receiver) = unbounded_channel();
        (Puts { queue: self, sender }, receiver)
    }

    /// Whether input waits for the upstream.
    pub(super) fn input_waits(&self, waits: bool) {
        self.moved.send_replace(waits);
    }

    /// Something was taken.
    pub(super) fn took(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        self.moved.send_modify(|_| {});
    }
}

impl Puts<'_> {
    /// Puts something in, once there is room.
    pub(super) async fn put(&self, back: Back) -> Result<(), Cut> {
        let bytes = match &back {
            Back::Output(bytes) | Back::Error(bytes) => bytes.len(),
            Back::Eof | Back::Exited(_) | Back::Killed { .. } => 0,
        };
        let mut moved = self.queue.moved.subscribe();
        loop {
            let input_waits = *moved.borrow_and_update();
            let waiting = self.queue.waiting.load(Ordering::Relaxed);
            if waiting < SOFT {
                break;
            }
            if input_waits {
                if waiting >= HARD {
                    return Err(Cut::Backlog(HARD));
                }
                break;
            }
            if moved.changed().await.is_err() {
                return Err(Cut::Gone);
            }
        }
        self.queue.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.sender.send(back).map_err(|_| Cut::Gone)
    }
}
