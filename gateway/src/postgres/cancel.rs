//! Cancel requests: the agent holds a key of the gateway's own, which means something in its session alone.
use super::exit::{Reached, reach};
use super::message::{Key, cancel};
use super::stop::Stop;
use super::wire;
use crate::Shared;
use crate::session::Session;
use aws_lc_rs::rand;
use sallyport_policy::{Destination, Permit};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncReadExt;

/// Where a query runs, and how it is stopped there.
#[derive(Debug, Clone)]
struct Running {
    session: String,
    permit: Permit,
    address: Option<SocketAddr>,
    tls: bool,
    key: Key,
}

/// The keys of all connections that are open.
#[derive(Clone, Default)]
pub struct Cancels(Arc<Mutex<HashMap<Key, Running>>>);

impl fmt::Debug for Cancels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancels")
            .field("open", &self.lock().len())
            .finish()
    }
}

/// One connection's key; forgotten when dropped.
#[derive(Debug)]
pub(super) struct Given {
    cancels: Cancels,
    own: Key,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.cancels.lock().remove(&self.own);
    }
}

impl Given {
    /// What the client is told.
    pub(super) fn own(&self) -> &Key {
        &self.own
    }
}

impl Cancels {
    /// A key for a connection that was reached so; `key` is the upstream's. None where the system gives no random bytes.
    pub(super) fn give(
        &self,
        session: &Session,
        permit: &Permit,
        reached: (Option<SocketAddr>, bool),
        key: Key,
    ) -> Option<Given> {
        let mut random = [0; 8];
        let mut lock = self.lock();
        let own = loop {
            rand::fill(&mut random).ok()?;
            let (process, secret) = random.split_at(4);
            let own = Key {
                // A process id, which clients may read as a signed number.
                process: u32::from_be_bytes(process.try_into().ok()?) >> 1,
                secret: secret.to_vec(),
            };
            if own.process != 0 && !lock.contains_key(&own) {
                break own;
            }
        };
        let running = Running {
            session: session.id().to_owned(),
            permit: permit.clone(),
            address: reached.0,
            tls: reached.1,
            key,
        };
        lock.insert(own.clone(), running);
        Some(Given {
            cancels: self.clone(),
            own,
        })
    }

    fn find(&self, session: &Session, destination: &Destination, own: &Key) -> Option<Running> {
        let running = self.lock().get(own).cloned()?;
        let same = running.session == session.id() && running.permit.destination() == destination;
        same.then_some(running)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes a cancel request on to where the query runs, and waits until it was taken there. False: there is no such connection.
pub(super) async fn pass_on(
    shared: &Shared,
    session: &Session,
    destination: &Destination,
    own: &Key,
) -> Result<bool, Stop> {
    let Some(running) = shared.cancels.find(session, destination, own) else {
        return Ok(false);
    };
    let dialled = shared
        .upstream
        .dial_again(session, &running.permit, running.address)
        .await
        .map_err(Stop::Upstream)?;
    let mut reached = match running.tls {
        true => reach(shared, session, &running.permit, dialled).await?,
        false => Reached {
            stream: crate::stream::Stream::new(dialled.stream),
            address: dialled.address,
            tls: false,
            end_point: None,
        },
    };
    let broken = |error: std::io::Error| Stop::Broken(format!("the cancel request was not taken: {error}"));
    wire::write(&mut reached.stream, &cancel(&running.key))
        .await
        .map_err(broken)?;
    // The server closes when it has done it; how it closes says nothing.
    let mut rest = [0; 16];
    let limit = shared.limits.upstream_handshake;
    let _closed = tokio::time::timeout(limit, reached.stream.read(&mut rest)).await;
    Ok(true)
}
