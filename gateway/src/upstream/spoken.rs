//! Which HTTP version an upstream agreed to last, so that its machine is offered the same.
use crate::session::Session;
use moka::sync::Cache;
use sallyport_policy::Destination;
use std::time::Duration;

/// How long an upstream is believed to speak what it spoke.
const BELIEVED: Duration = Duration::from_secs(3600);
/// Destinations remembered at most, over all sessions.
const HELD: u64 = 10_000;

/// By session, since each may have another upstream under one name.
pub(super) struct Spoken(Cache<(String, Destination), bool>);

impl Default for Spoken {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(HELD).time_to_live(BELIEVED).build();
        Self(cache)
    }
}

impl std::fmt::Debug for Spoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spoken").field(&self.0.entry_count()).finish()
    }
}

impl Spoken {
    /// Notes whether HTTP/2 was agreed to.
    pub(super) fn learn(&self, session: &Session, destination: &Destination, http2: bool) {
        self.0
            .insert((session.id().to_owned(), destination.clone()), http2);
    }

    /// Whether HTTP/2 was agreed to last; nothing where it is not known.
    pub(super) fn http2(&self, session: &Session, destination: &Destination) -> Option<bool> {
        self.0.get(&(session.id().to_owned(), destination.clone()))
    }
}
