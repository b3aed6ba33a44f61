//! What is looked for in the messages of one way: values that come back become placeholders, values that go out end the WebSocket.
use super::frame::{Side, Violation};
use crate::ledger::Traffic;
use crate::secret::{BodyGuard, Leak, Redactor, SessionSecrets};
use bytes::BytesMut;
use std::sync::Arc;
use tungstenite::protocol::frame::coding::CloseCode;

/// Where the secrets of this moment come from: a WebSocket may outlive them.
pub type Secrets = Box<dyn Fn() -> Arc<SessionSecrets> + Send + Sync>;

/// Looks into the messages of one way.
pub struct Sight {
    secrets: Secrets,
    known: Arc<SessionSecrets>,
    from: Side,
    message: Option<Lens>,
    traffic: Arc<Traffic>,
}

enum Lens {
    Redact(Redactor),
    Guard(BodyGuard),
}

impl Lens {
    fn new(secrets: &SessionSecrets, from: Side) -> Option<Self> {
        match from {
            Side::Upstream => secrets.redactor().map(Self::Redact),
            Side::Client => secrets.body_guard().map(Self::Guard),
        }
    }

    fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        match self {
            Self::Redact(redactor) => {
                redactor.push(piece, out);
                Ok(())
            }
            Self::Guard(guard) => guard.push(piece, out).map_err(|leak| refused(&leak)),
        }
    }

    fn finish(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        match self {
            Self::Redact(redactor) => {
                redactor.finish(out);
                Ok(())
            }
            Self::Guard(guard) => guard.finish(out).map_err(|leak| refused(&leak)),
        }
    }

    fn note(&self, traffic: &Traffic) {
        match self {
            Self::Redact(redactor) if !redactor.found().is_empty() => {
                traffic.redacted(redactor.found().iter().cloned());
            }
            Self::Guard(guard) if !guard.placeholders_seen().is_empty() => {
                traffic.remark(guard.placeholders_seen().iter().map(|name| {
                    format!("placeholder of credential `{name}` in a message, passed unchanged")
                }));
            }
            _ => {}
        }
    }
}

fn refused(leak: &Leak) -> Violation {
    let name = &leak.credential;
    Violation::new(
        CloseCode::Policy,
        format!(
            "the value of credential `{name}` itself was in a message; send its placeholder where it is bound to"
        ),
    )
}

impl Sight {
    /// For the messages that this side sends. What is found is noted in `traffic`.
    pub fn new(secrets: Secrets, from: Side, traffic: Arc<Traffic>) -> Self {
        let known = secrets();
        Self {
            message: Lens::new(&known, from),
            secrets,
            known,
            from,
            traffic,
        }
    }

    /// Whether there is anything to look for.
    pub fn looks(&self) -> bool {
        self.message.is_some()
    }

    /// A message begins: from here on it is looked at with the secrets of this moment.
    pub fn begin(&mut self) {
        let now = (self.secrets)();
        if !Arc::ptr_eq(&now, &self.known) {
            self.message = Lens::new(&now, self.from);
            self.known = now;
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
        let Some(mut lens) = Lens::new(&self.known, self.from) else {
            out.extend_from_slice(payload);
            return Ok(());
        };
        lens.push(payload, out)?;
        lens.finish(out)?;
        lens.note(&self.traffic);
        Ok(())
    }
}
