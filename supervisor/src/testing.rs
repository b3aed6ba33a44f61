//! Fakes of the gateway and of machines, for tests of the engine alone. They count effects and keep what survives a kill.
mod door;
mod machine;

use crate::conversation::{Entry, What};
pub(crate) use door::FakeDoor;
pub(crate) use machine::{FakeDriver, FakeMachine};

/// What a client shows that took these entries one after another: a rewind takes void ones away, final text replaces pieces.
pub(crate) fn shown(entries: &[Entry]) -> Vec<Entry> {
    let mut view: Vec<Entry> = Vec::new();
    for entry in entries {
        let (step, attempt) = (entry.step, entry.attempt);
        match &entry.what {
            What::Rewind { from, .. } => {
                view.retain(|old| old.step != step || old.attempt >= attempt || old.sequence < *from);
                continue;
            }
            What::Said { .. } => {
                view.retain(|old| old.step != step || !matches!(old.what, What::Delta { .. }))
            }
            What::Result { call, .. } => {
                view.retain(|old| !matches!(&old.what, What::Output { call: other, .. } if other == call));
            }
            _ => {}
        }
        view.push(entry.clone());
    }
    view
}
