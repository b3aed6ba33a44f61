//! Kept upstream connections, never shared between sessions, judged anew each time they are used.
use super::settings::Told;
use super::trust::{Checked, Fingerprint};
use crate::metrics::path::{Path, UpstreamIdle};
use crate::payload::Body;
use hyper::client::conn::{http1, http2};
use sallyport_policy::Destination;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections with the same key lead to the same place in the same way for the same session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) session: String,
    pub(super) destination: Destination,
    /// Authorities it was checked with; none where it is plain.
    pub(super) tls: Option<Checked>,
    /// The client certificate that was shown.
    pub(super) identity: Option<Fingerprint>,
}

/// One open connection.
#[derive(Debug)]
pub(super) enum Connection {
    Http1 {
        sender: http1::SendRequest<Body>,
        address: Option<SocketAddr>,
    },
    Http2 {
        streams: Streams,
        address: Option<SocketAddr>,
    },
}

/// What opens streams on an HTTP/2 connection.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    pub(super) sender: http2::SendRequest<Body>,
    /// Whether extended CONNECT is taken, once that is known.
    pub(super) extended: Told,
}

#[derive(Debug)]
struct Kept<S> {
    sender: S,
    address: Option<SocketAddr>,
    since: Instant,
}

/// One that waits for its next request.
#[derive(Debug)]
struct Idle {
    kept: Kept<http1::SendRequest<Body>>,
    _counted: UpstreamIdle,
}

#[derive(Debug, Default)]
struct Place {
    idle: Vec<Idle>,
    shared: Option<Kept<Streams>>,
}

impl Place {
    fn shared(
        &mut self,
        admitted: impl Fn(Option<SocketAddr>) -> bool,
    ) -> Option<(Streams, Option<SocketAddr>)> {
        let kept = self.shared.as_mut()?;
        if kept.sender.sender.is_closed() || !admitted(kept.address) {
            self.shared = None;
            return None;
        }
        kept.sender.sender.is_ready().then(|| {
            kept.since = Instant::now();
            (kept.sender.clone(), kept.address)
        })
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    places: Mutex<HashMap<Key, Place>>,
    idle_limit: Duration,
    idle_count: usize,
    counters: Arc<Path>,
}

impl Pool {
    pub(super) fn new(idle_limit: Duration, idle_count: usize, counters: Arc<Path>) -> Self {
        Self {
            places: Mutex::default(),
            idle_limit,
            idle_count,
            counters,
        }
    }

    /// A live connection whose address is still admitted, the most recently used first.
    pub(super) fn take(
        &self,
        key: &Key,
        admitted: impl Fn(Option<SocketAddr>) -> bool,
    ) -> Option<Connection> {
        let mut places = self.lock();
        let place = places.get_mut(key)?;
        if let Some((streams, address)) = place.shared(&admitted) {
            return Some(Connection::Http2 { streams, address });
        }
        while let Some(Idle { kept, .. }) = place.idle.pop() {
            if kept.sender.is_ready() && kept.since.elapsed() < self.idle_limit && admitted(kept.address) {
                return Some(Connection::Http1 {
                    sender: kept.sender,
                    address: kept.address,
                });
            }
        }
        None
    }

    /// The live HTTP/2 connection, whose address is still admitted.
    pub(super) fn shared(&self, key: &Key, admitted: impl Fn(Option<SocketAddr>) -> bool) -> Option<Streams> {
        let mut places = self.lock();
        let (streams, _) = places.get_mut(key)?.shared(admitted)?;
        Some(streams)
    }

    /// Lets others use a new HTTP/2 connection too.
    pub(super) fn share(&self, key: &Key, connection: &Connection) {
        if let Connection::Http2 { streams, address } = connection {
            let kept = Kept {
                sender: streams.clone(),
                address: *address,
                since: Instant::now(),
            };
            self.lock().entry(key.clone()).or_default().shared = Some(kept);
        }
    }

    /// Takes an HTTP/1.1 connection back once its exchange is over, if it lives then.
    pub(super) fn give_back(self: &Arc<Self>, key: Key, connection: Connection) {
        let Connection::Http1 { mut sender, address } = connection else {
            return;
        };
        let pool = self.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                pool.keep(
                    key,
                    Kept {
                        sender,
                        address,
                        since: Instant::now(),
                    },
                );
            }
        });
    }

    /// Drops what was checked with other authorities of the gateway than these. What is at work and comes back later is not found
    /// under its key any more, and swept.
    pub(super) fn keep_checked_with(&self, gateway: &Fingerprint) {
        self.lock()
            .retain(|key, _| key.tls.is_none_or(|checked| checked.gateway == *gateway));
    }

    /// Drops what is closed or was idle for too long.
    pub(super) fn sweep(&self) {
        let limit = self.idle_limit;
        self.lock().retain(|_, place| {
            place
                .idle
                .retain(|Idle { kept, .. }| kept.sender.is_ready() && kept.since.elapsed() < limit);
            place
                .shared
                .take_if(|kept| kept.sender.sender.is_closed() || kept.since.elapsed() >= limit);
            !place.idle.is_empty() || place.shared.is_some()
        });
    }

    fn keep(&self, key: Key, kept: Kept<http1::SendRequest<Body>>) {
        let kept = Idle {
            kept,
            _counted: self.counters.upstream_idle(),
        };
        let mut places = self.lock();
        let idle = &mut places.entry(key).or_default().idle;
        if idle.len() >= self.idle_count {
            idle.remove(0);
        }
        idle.push(kept);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
