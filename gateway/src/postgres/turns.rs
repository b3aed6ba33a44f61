//! PURE: whether a connection is between two transactions, told by what both sides say.
//!
//! A server ends its answer to each `Query`, `Sync` and `FunctionCall` with one `ReadyForQuery`, which says whether a transaction is
//! open (documentation, 55.2). What a client sends before its `Sync` is part of what is under way too.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// Kind of the message that says so.
pub(super) const READY: u8 = b'Z';
/// Its body where no transaction is open.
const IDLE: u8 = b'I';

/// One connection. Both directions tell it what passes; messages count from when they are read, before they go on.
#[derive(Debug)]
pub(super) struct Turns {
    /// Answers that are still due; the first one ends the log-in.
    due: AtomicU64,
    /// Whether something waits for its `Sync`.
    unsynced: AtomicBool,
    idle: AtomicBool,
    changed: Notify,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            due: AtomicU64::new(1),
            unsynced: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }
}

impl Turns {
    /// The client has begun a message of this kind.
    pub(super) fn asked(&self, kind: u8) {
        match kind {
            b'Q' | b'S' | b'F' => {
                self.due.fetch_add(1, Ordering::SeqCst);
                self.unsynced.store(false, Ordering::SeqCst);
            }
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' => self.unsynced.store(true, Ordering::SeqCst),
            // Data of a copy belongs to what was asked before; a farewell asks for nothing.
            _ => {}
        }
    }

    /// The server is ready for more, and says whether a transaction is open.
    pub(super) fn answered(&self, status: u8) {
        let one_less = |due: u64| due.checked_sub(1);
        // A server that says so unasked is believed: nothing more is due then either.
        let _none_due = self
            .due
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        self.idle.store(status == IDLE, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Whether nothing is under way, so that nobody would wonder what became of it.
    fn rests(&self) -> bool {
        self.due.load(Ordering::SeqCst) == 0
            && !self.unsynced.load(Ordering::SeqCst)
            && self.idle.load(Ordering::SeqCst)
    }

    /// Resolves when nothing is under way.
    pub(super) async fn rest(&self) {
        loop {
            let changed = self.changed.notified();
            if self.rests() {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both sides say in turn, letters of the client's messages and `ReadyForQuery` as its status; whether it rests after.
    fn rests(said: &str) -> bool {
        let turns = Turns::default();
        for word in said.bytes() {
            match word {
                b'i' => turns.answered(b'I'),
                b't' => turns.answered(b'T'),
                b'e' => turns.answered(b'E'),
                kind => turns.asked(kind),
            }
        }
        turns.rests()
    }

    #[test]
    fn a_connection_rests_when_everything_is_answered_and_no_transaction_is_open() {
        for said in [
            "i",
            "iQi",
            "iQtQi",
            "iPBESi",
            "iQddci",
            "iPBESPBESii",
            "iFi",
            "iQtQeQi",
            "iX",
            "ii",
        ] {
            assert!(rests(said), "{said}");
        }
        for said in [
            "",
            "iQ",
            "iQt",
            "iQe",
            "iP",
            "iPBE",
            "iPBESP",
            "iQQi",
            "iPBESPBESi",
            "iQd",
            "iQiPB",
        ] {
            assert!(!rests(said), "{said}");
        }
    }

    #[tokio::test]
    async fn who_waits_for_it_is_told() {
        let turns = Turns::default();
        turns.answered(b'T');
        let (mut waiting, mut told) = (std::pin::pin!(turns.rest()), false);
        tokio::select! {
            biased;
            () = &mut waiting => told = true,
            () = std::future::ready(()) => {}
        }
        assert!(!told);
        turns.asked(b'Q');
        turns.answered(b'I');
        waiting.await;
    }
}
