//! What every way in hands on: one connection, and the door of the session that it belongs to.
use crate::limits::Limits;
use crate::names::synthetic::Table;
use crate::session::Session;
use crate::stream::Stream;
use crate::turns::{Owner, Turns};
use sallyport_policy::{Destination, Host};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// One connection, whichever way it came.
#[derive(Debug)]
pub struct Intake {
    /// Whose it is.
    pub session: Arc<Session>,
    /// What all connections of the session share.
    pub door: Arc<Door>,
    /// Where it comes from, where that tells anything: machines may all have the same address, so theirs is left out.
    pub client: Option<SocketAddr>,
    /// What was dialled, as a name where it was a name.
    pub destination: Destination,
    /// The bytes.
    pub stream: Stream,
}

/// What all connections of one session share.
#[derive(Debug)]
pub struct Door {
    /// The names for which it holds synthetic addresses.
    pub names: Arc<Table>,
    connections: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
    handshakes: Semaphore,
    turns: Arc<Turns>,
    owner: Owner,
    ended: CancellationToken,
    listeners: Mutex<CancellationToken>,
}

impl Door {
    /// Resolves when the session is over.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// A place for one more connection, or none when the session has as many as it may.
    pub fn admit(&self) -> Option<OwnedSemaphorePermit> {
        self.connections.clone().try_acquire_owned().ok()
    }

    /// A place for one more tunnel, or none when the session has as many as it may.
    pub fn admit_tunnel(&self) -> Option<OwnedSemaphorePermit> {
        self.tunnels.clone().try_acquire_owned().ok()
    }

    /// Does a handshake of the session: among so many of its own at most, step by step in turn with those of the others. None where
    /// no place among its own came free within the limit.
    pub async fn shake_hands<F: Future>(&self, limit: Duration, handshake: F) -> Option<F::Output> {
        let _place = timeout(limit, self.handshakes.acquire()).await.ok()?.ok()?;
        Some(self.turns.take(self.owner.clone(), handshake).await)
    }

    /// What was dialled, as the name that a synthetic address stands for. One without a name stays an address, which no
    /// policy can make reachable: its refusal can be read like any other.
    pub fn meant(&self, dialled: Destination) -> Destination {
        let Host::Address(address) = dialled.host else {
            return dialled;
        };
        let address = address.to_canonical();
        let host = match self.names.name(address) {
            Some(name) => Host::Name(name.into()),
            None => Host::Address(address),
        };
        Destination { host, ..dialled }
    }

    /// Ends the listeners that were handed over before, and gives the token for the new ones.
    pub fn replace_listeners(&self) -> CancellationToken {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.cancel();
        *listeners = self.ended.child_token();
        listeners.clone()
    }
}

/// The doors of all sessions that had a connection or a listener.
#[derive(Debug)]
pub struct Doors {
    doors: Mutex<HashMap<String, Arc<Door>>>,
    limits: Arc<Limits>,
    turns: Arc<Turns>,
    draining: CancellationToken,
}

impl Doors {
    /// No doors yet. Handed-over listeners end when `draining` is cancelled.
    pub fn new(limits: Arc<Limits>, turns: Arc<Turns>, draining: CancellationToken) -> Self {
        Self {
            doors: Mutex::default(),
            limits,
            turns,
            draining,
        }
    }

    /// The door of a session.
    pub fn of(&self, session: &Session) -> Arc<Door> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        match doors.get(session.id()) {
            Some(door) if !door.ended.is_cancelled() => door.clone(),
            // None yet, or that of an earlier session with this id.
            _ => {
                let door = Arc::new(self.make(session));
                doors.insert(session.id().to_owned(), door.clone());
                door
            }
        }
    }

    /// Forgets the doors of sessions that are no more.
    pub fn sweep(&self) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|_, door| !door.ended.is_cancelled());
    }

    fn make(&self, session: &Session) -> Door {
        Door {
            names: Arc::new(self.names(session)),
            connections: Arc::new(Semaphore::new(self.limits.connections)),
            tunnels: Arc::new(Semaphore::new(self.limits.tunnels)),
            handshakes: Semaphore::new(self.limits.handshakes),
            turns: self.turns.clone(),
            owner: Owner::Session(session.id().into()),
            ended: session.closed().clone(),
            listeners: Mutex::new(self.draining.child_token()),
        }
    }

    /// The names of a session, kept in its file. Who comes for a session that is closed leaves no file behind: one that is made while
    /// the session is being closed is removed here or, as the last step of closing, there.
    fn names(&self, session: &Session) -> Table {
        let limits = &self.limits;
        let fresh = || Table::new(session.id(), limits.names).telling_refused(limits.refused_names);
        if session.closed().is_cancelled() {
            return fresh();
        }
        let names = fresh().kept_in(&session.names_file()).unwrap_or_else(|error| {
            tracing::error!(%error, session = session.id(), "its synthetic addresses will not outlive a restart");
            fresh()
        });
        if session.closed().is_cancelled()
            && let Err(error) = session.forget_names()
        {
            tracing::error!(%error, session = session.id(), "the names of a session that is no more stay until the next start");
        }
        names
    }
}
