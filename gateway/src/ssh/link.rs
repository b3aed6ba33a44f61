//! What everything on one ssh connection of an agent shares, and how the agent logged in.
use super::turn::Freed;
use crate::Shared;
use crate::control::types::Verdict;
use crate::intake::Door;
use crate::ledger::Ledger;
use crate::session::Session;
use sallyport_policy::{Destination, Place};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Keys that are remembered to be told of, at most; and other things refused.
const REFUSED: usize = 8;

/// How an agent logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogIn {
    /// Its user name, which is the one upstream.
    pub(super) user: String,
    /// What it showed.
    pub(super) shown: Shown,
}

/// What an agent logged in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing.
    Nothing,
    /// The placeholder of this credential, which stands in this place.
    Credential(String, Place),
}

/// What a client may ask to have forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// Ports and sockets, in either direction (RFC 4254 section 7).
    Ports,
    /// The agent that holds keys.
    Keys,
    /// The screen (RFC 4254 section 6.3).
    Screen,
}

impl Forwarded {
    /// Why it is not.
    fn why(self) -> &'static str {
        match self {
            Self::Ports => "ports are not forwarded: each connection is decided by the name it is made to",
            Self::Keys => {
                "the key agent is not forwarded: the real keys are with the gateway, which logs in where a rule lets it"
            }
            Self::Screen => "X11 is not forwarded: a host opens no connection towards a machine",
        }
    }
}

/// One connection of an agent.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Arc<Session>,
    pub(super) door: Arc<Door>,
    pub(super) destination: Destination,
    client: Option<SocketAddr>,
    log_in: OnceLock<LogIn>,
    entered: Freed,
    /// Fingerprints of keys that are no placeholders.
    refused: Mutex<Vec<String>>,
    /// What is to be told where there is a place for it: at the next command.
    untold: Mutex<Vec<String>>,
    asked: AtomicBool,
}

impl Link {
    pub(super) fn new(
        shared: Arc<Shared>,
        session: Arc<Session>,
        door: Arc<Door>,
        (client, destination): (Option<SocketAddr>, Destination),
        entered: Freed,
    ) -> Self {
        Self {
            shared,
            session,
            door,
            destination,
            client,
            log_in: OnceLock::new(),
            entered,
            refused: Mutex::default(),
            untold: Mutex::default(),
            asked: AtomicBool::new(false),
        }
    }

    /// Opens a record.
    pub(super) fn ledger(&self) -> Ledger {
        let recorder = &self.shared.recorder;
        let mut ledger = recorder.open(Some(&self.session), Some(&self.destination), "ssh");
        ledger.came_from(self.client);
        ledger
    }

    /// How the agent logged in, once it has.
    pub(super) fn log_in(&self) -> Option<&LogIn> {
        self.log_in.get()
    }

    /// The first log-in counts; the protocol has no second.
    pub(super) fn logged_in(&self, log_in: LogIn) {
        self.log_in.get_or_init(|| log_in);
        self.entered.set();
    }

    /// Remembers a key that opens nothing.
    pub(super) fn refuse_key(&self, fingerprint: String) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REFUSED && !refused.contains(&fingerprint) {
            refused.push(fingerprint);
        }
    }

    /// The keys that were offered and are no placeholders, in words; empty where there were none.
    pub(super) fn foreign_keys(&self) -> String {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match refused.as_slice() {
            [] => String::new(),
            [one] => format!("the key `{one}` that was offered is no placeholder"),
            more => format!(
                "the keys `{}` that were offered are no placeholders",
                more.join("`, `")
            ),
        }
    }

    /// Why there was no log-in.
    pub(super) fn no_log_in(&self) -> String {
        match self.foreign_keys() {
            none if none.is_empty() => "the client did not log in".to_owned(),
            keys => keys,
        }
    }

    /// A command was asked for, which leaves its own record.
    pub(super) fn note_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Records that forwarding was refused. The protocol has no words for it but where a channel was asked for, so that it is told at
    /// the next command.
    pub(super) async fn refuse_forwarding(&self, what: Forwarded, target: &str) {
        self.note_asked();
        let mut ledger = self.ledger();
        ledger.asked("forward", target);
        ledger.verdict(Verdict::Denied, what.why());
        let told = format!("{} (decision {})", what.why(), ledger.id());
        ledger.close("refused").await;
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        if untold.len() < REFUSED {
            untold.push(told);
        }
    }

    /// What was refused and not told yet.
    pub(super) fn untold(&self) -> Vec<String> {
        std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resolves when there should have been a log-in and was none.
    pub(super) async fn late(&self) {
        tokio::time::sleep(self.shared.limits.ssh_log_in).await;
        if self.log_in().is_some() {
            std::future::pending::<()>().await;
        }
    }
}
