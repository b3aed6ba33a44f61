//! What passes over ssh, looked at both ways: values that go out, values that come back.
use super::stop::Cut;
use crate::ledger::Traffic;
use crate::secret::{BodyGuard, PackGuard, Redactor, SessionSecrets};
use crate::session::Session;
use crate::session::quota::Pass;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What bytes are held against.
pub(super) struct Watch<'a> {
    pub(super) traffic: Arc<Traffic>,
    pub(super) pass: &'a Pass,
    pub(super) session: &'a Arc<Session>,
    pub(super) secrets: &'a Arc<SessionSecrets>,
    /// Bytes inflated of what a push brings; none where it is no push.
    pub(super) inflated: Option<u64>,
    /// How long the possible beginning of a value may be held back.
    pub(super) held: Duration,
    /// How long a host that has said all may take to say how its command ended.
    pub(super) farewell: Duration,
}

/// What goes out, looked at for values.
pub(super) struct Guarded {
    guard: Option<BodyGuard>,
    pack: Option<PackGuard>,
    held: usize,
    traffic: Arc<Traffic>,
}

impl Guarded {
    pub(super) fn new(watch: &Watch<'_>) -> Self {
        Self {
            guard: watch.secrets.body_guard(),
            pack: watch
                .inflated
                .and_then(|budget| PackGuard::new(watch.secrets.clone(), budget)),
            held: 0,
            traffic: watch.traffic.clone(),
        }
    }

    pub(super) fn holds(&self) -> bool {
        self.held > 0
    }

    pub(super) fn push(&mut self, piece: &Bytes) -> Result<Bytes, Cut> {
        let Some(guard) = &mut self.guard else {
            return Ok(piece.clone());
        };
        if let Some(pack) = &mut self.pack {
            pack.look(piece).map_err(Cut::Leak)?;
        }
        let mut settled = BytesMut::new();
        guard.push(piece, &mut settled).map_err(Cut::Leak)?;
        self.held = (self.held + piece.len()).saturating_sub(settled.len());
        let seen = guard.placeholders_seen().iter();
        self.traffic
            .remark(seen.map(|name| format!("the placeholder of `{name}` went out as text")));
        Ok(settled.freeze())
    }

    pub(super) fn finish(&mut self) -> Result<Bytes, Cut> {
        let mut settled = BytesMut::new();
        if let Some(guard) = &mut self.guard {
            guard.finish(&mut settled).map_err(Cut::Leak)?;
        }
        self.held = 0;
        Ok(settled.freeze())
    }
}

/// What comes back, without values.
pub(super) struct Redacted {
    redactor: Option<Redactor>,
    held: usize,
    traffic: Arc<Traffic>,
}

impl Redacted {
    pub(super) fn new(watch: &Watch<'_>) -> Self {
        Self {
            redactor: watch.session.redactor(),
            held: 0,
            traffic: watch.traffic.clone(),
        }
    }

    pub(super) fn holds(&self) -> bool {
        self.held > 0
    }

    pub(super) fn push(&mut self, piece: &Bytes, watch: &Watch<'_>) -> Result<Bytes, Cut> {
        watch.pass.receive(piece.len()).map_err(Cut::Limit)?;
        self.traffic
            .bytes_in
            .fetch_add(piece.len() as u64, Ordering::Relaxed);
        let Some(redactor) = &mut self.redactor else {
            return Ok(piece.clone());
        };
        let mut settled = BytesMut::new();
        redactor.push(piece, &mut settled);
        self.held = (self.held + piece.len()).saturating_sub(settled.len());
        self.traffic.redacted(redactor.found().iter().cloned());
        Ok(settled.freeze())
    }

    pub(super) fn finish(&mut self) -> Bytes {
        let mut settled = BytesMut::new();
        if let Some(redactor) = &mut self.redactor {
            redactor.finish(&mut settled);
            self.traffic.redacted(redactor.found().iter().cloned());
        }
        self.held = 0;
        settled.freeze()
    }
}
