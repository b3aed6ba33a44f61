//! What is known of every run at a glance, and the way to those that are going on.
use crate::engine::journal::Head;
use crate::run::event::Event;
use crate::runs::{RunState, RunsError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// An event from outside with the answer to whoever brought it.
pub(super) struct Brought {
    pub(super) event: Event,
    pub(super) taken: oneshot::Sender<Result<(), RunsError>>,
}

/// One run.
#[derive(Clone)]
struct Slot {
    head: Head,
    inbox: Option<mpsc::Sender<Brought>>,
}

/// All runs, by id.
#[derive(Clone, Default)]
pub(super) struct Board {
    slots: Arc<Mutex<BTreeMap<String, Slot>>>,
}

impl Board {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, head: Head, inbox: Option<mpsc::Sender<Brought>>) {
        self.slots().insert(head.summary.id.clone(), Slot { head, inbox });
    }

    /// Shows a new head; the way in stays, but for a run that is over.
    pub(super) fn show(&self, head: &Head) {
        if let Some(slot) = self.slots().get_mut(&head.summary.id) {
            slot.head = head.clone();
            if head.is_over() {
                slot.inbox = None;
            }
        }
    }

    /// Shows that a run cannot go on.
    pub(super) fn hold(&self, run: &str, why: &str) {
        tracing::error!(run, why, "a run is held");
        if let Some(slot) = self.slots().get_mut(run) {
            slot.head.summary.state = RunState::Held { why: why.into() };
            slot.inbox = None;
        }
    }

    pub(super) fn head(&self, run: &str) -> Option<Head> {
        self.slots().get(run).map(|slot| slot.head.clone())
    }

    /// Newest first: ids grow with time.
    pub(super) fn heads(&self) -> Vec<Head> {
        self.slots()
            .values()
            .rev()
            .map(|slot| slot.head.clone())
            .collect()
    }

    /// Brings an event to a run and waits until it is journaled, or dropped as meaning nothing to it.
    pub(super) async fn bring(&self, run: &str, event: Event) -> Result<(), RunsError> {
        let (head, inbox) = match self.slots().get(run) {
            Some(slot) => (slot.head.clone(), slot.inbox.clone()),
            None => return Err(RunsError::Unknown(run.into())),
        };
        let Some(inbox) = inbox else {
            return Err(match head.summary.state {
                RunState::Held { why } => RunsError::Invalid(format!("run `{run}` is held: {why}")),
                RunState::Ended { .. } => RunsError::Ended(run.into()),
                _ => RunsError::Unavailable("the supervisor is stopping; try again when it is back".into()),
            });
        };
        let (taken, answer) = oneshot::channel();
        let stopping =
            || RunsError::Unavailable("the supervisor is stopping; try again when it is back".into());
        inbox
            .send(Brought { event, taken })
            .await
            .map_err(|_| stopping())?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }
}
