//! What is looked for in the messages of one way: values that come back become placeholders, credentials
//! are put into texts that go out, and values in what goes out end the WebSocket.
use super::frame::{Side, Violation};
use crate::ledger::Traffic;
use crate::secret::fill::Fill;
use crate::secret::{BodyGuard, Leak, Redactor, SessionSecrets};
use bytes::BytesMut;
use sallyport_policy::Permit;
use std::sync::Arc;
use tungstenite::protocol::frame::coding::CloseCode;

/// Where the secrets of this moment come from: a WebSocket may outlive them.
pub type Secrets = Box<dyn Fn() -> Arc<SessionSecrets> + Send + Sync>;

/// Looks into the messages of one way.
pub struct Sight {
    secrets: Secrets,
    known: Arc<SessionSecrets>,
    from: Side,
    permit: Permit,
    bound: usize,
    message: Option<Lens>,
    traffic: Arc<Traffic>,
}

enum Lens {
    Redact(Redactor),
    /// What is put into the message that is passing, where it is a text and there is something to put in.
    Guard(Box<BodyGuard>, Option<Box<Fill>>),
}

impl Lens {
    fn new(secrets: &SessionSecrets, from: Side, permit: &Permit, bound: usize) -> Option<Self> {
        match from {
            Side::Upstream => secrets.redactor().map(Self::Redact),
            Side::Client => secrets
                .body_guard_under(permit, bound)
                .map(|guard| Self::Guard(Box::new(guard), None)),
        }
    }

    fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        match self {
            Self::Redact(redactor) => {
                redactor.push(piece, out);
                Ok(())
            }
            Self::Guard(guard, None) => guard.push(piece, out).map_err(refused),
            Self::Guard(guard, Some(fill)) => {
                let mut seen = BytesMut::new();
                guard.push(piece, &mut seen).map_err(refused)?;
                fill.push(&seen, out).map_err(refused)
            }
        }
    }

    fn finish(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        match self {
            Self::Redact(redactor) => {
                redactor.finish(out);
                Ok(())
            }
            Self::Guard(guard, None) => guard.finish(out).map_err(refused),
            Self::Guard(guard, Some(fill)) => {
                let mut seen = BytesMut::new();
                guard.finish(&mut seen).map_err(refused)?;
                fill.push(&seen, out).map_err(refused)?;
                fill.finish(out).map_err(refused)
            }
        }
    }

    fn note(&self, traffic: &Traffic) {
        match self {
            Self::Redact(redactor) if redactor.found().is_empty() => {}
            Self::Redact(redactor) => traffic.redacted(redactor.found().iter().cloned()),
            Self::Guard(guard, fill) => {
                let used = fill.as_ref().map_or(&[][..], |fill| fill.put_in());
                traffic.used(used);
                let remarks = guard.remarks("a message", used);
                if !remarks.is_empty() {
                    traffic.remark(remarks);
                }
            }
        }
    }
}

fn refused(leak: Leak) -> Violation {
    Violation::new(CloseCode::Policy, leak.sentence)
}

impl Sight {
    /// For the messages that this side sends under a permit. What is found is noted in `traffic`; unknown secrets are looked for in the
    /// first `bound` bytes.
    pub fn new(
        secrets: Secrets,
        from: Side,
        (permit, bound): (Permit, usize),
        traffic: Arc<Traffic>,
    ) -> Self {
        let known = secrets();
        Self {
            message: Lens::new(&known, from, &permit, bound),
            secrets,
            known,
            from,
            permit,
            bound,
            traffic,
        }
    }

    /// Whether there is anything to look for.
    pub fn looks(&self) -> bool {
        self.message.is_some()
    }

    /// A message begins, which is a text or not: from here on it is looked at with the secrets of this moment.
    pub fn begin(&mut self, text: bool) {
        let now = (self.secrets)();
        if !Arc::ptr_eq(&now, &self.known) {
            self.message = Lens::new(&now, self.from, &self.permit, self.bound);
            self.known = now;
        }
        if let Some(Lens::Guard(_, fill)) = &mut self.message {
            *fill = text
                .then(|| self.known.fill_message(&self.permit))
                .flatten()
                .map(Box::new);
        }
    }

    /// Looks at a piece of a message and appends to `out` what may go on; the rest is held back until the next call.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        match &mut self.message {
            Some(lens) => lens.push(piece, out),
            None => {
                out.extend_from_slice(piece);
                Ok(())
            }
        }
    }

    /// The end of a message.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        let Some(lens) = &mut self.message else {
            return Ok(());
        };
        lens.finish(out)?;
        lens.note(&self.traffic);
        Ok(())
    }

    /// Looks at the whole payload of a control frame, which may come in the middle of a message.
    pub fn control(&mut self, payload: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        let Some(mut lens) = Lens::new(&self.known, self.from, &self.permit, self.bound) else {
            out.extend_from_slice(payload);
            return Ok(());
        };
        lens.push(payload, out)?;
        lens.finish(out)?;
        lens.note(&self.traffic);
        Ok(())
    }
}
