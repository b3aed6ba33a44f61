//! What ends a stream that lasts: its session, its grants, the gateway's stop, silence.
use crate::Shared;
use crate::intake::Door;
use crate::ledger::Traffic;
use crate::session::Session;
use sallyport_policy::Permit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often an open stream's grant is looked at.
const GRANT_CHECK: Duration = Duration::from_secs(1);

/// Why the gateway ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The session was removed.
    Session,
    /// The gateway was told to stop.
    Stopping,
    /// A grant that it rested on has ended or was taken back.
    Grant,
    /// Nothing moved for long.
    Idle,
}

impl Over {
    /// As the record's ending.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Session => "the session ended",
            Self::Stopping => "the gateway stopped",
            Self::Grant => "the grant ended",
            Self::Idle => "idle",
        }
    }
}

/// Whose stream it is, and by what right it is open.
#[derive(Debug, Clone, Copy)]
pub struct Hold<'a> {
    /// The session's door.
    pub door: &'a Door,
    /// The session.
    pub session: &'a Arc<Session>,
    /// The right to the stream.
    pub permit: &'a Permit,
    /// What has moved on it.
    pub traffic: &'a Traffic,
}

/// Resolves when a stream must end. `idle` is how long nothing may move.
pub async fn over(shared: &Shared, hold: Hold<'_>, idle: Duration) -> Over {
    tokio::select! {
        () = hold.door.ended() => Over::Session,
        () = shared.draining.cancelled() => Over::Stopping,
        () = grant_ends(hold.session, hold.permit) => Over::Grant,
        () = stands_still(hold.traffic, idle) => Over::Idle,
    }
}

/// Ends when one of the grants that the stream rests on has ended or was taken back; never where it rests on rules alone.
async fn grant_ends(session: &Session, permit: &Permit) {
    if permit.grants().is_empty() {
        return std::future::pending().await;
    }
    while permit
        .grants()
        .iter()
        .all(|grant| session.grant_expiry(grant).is_some())
    {
        tokio::time::sleep(GRANT_CHECK).await;
    }
}

/// Ends when no byte moved for a whole `limit`.
async fn stands_still(traffic: &Traffic, limit: Duration) {
    let total = || traffic.bytes_in.load(Ordering::Relaxed) + traffic.bytes_out.load(Ordering::Relaxed);
    let mut before = total();
    loop {
        tokio::time::sleep(limit).await;
        let now = total();
        if now == before {
            return;
        }
        before = now;
    }
}
