//! PURE: what the client says after its log-in, held against the real values before it goes on.
use super::frames::{Frames, Part};
use super::message::head;
use super::turns::Turns;
use crate::secret::{BodyGuard, Leak, SessionSecrets};
use bytes::{BufMut, BytesMut};
use std::sync::Arc;

/// Messages of a client (documentation, 55.7): all but those of a log-in.
const KNOWN: &[u8] = b"BCDEFHPQSXcdf";
const COPY_DATA: u8 = b'd';
const TERMINATE: u8 = b'X';

/// Why nothing more may be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Cut {
    /// A real value was about to go out.
    #[error(transparent)]
    Leak(#[from] Leak),
    /// The client breaks the protocol.
    #[error("{0}")]
    Malformed(String),
}

/// Takes the client's bytes, lets go what may be sent.
///
/// Data of a COPY is one stream however it is cut into messages, and is put into messages anew, so that a value that is cut in
/// two is seen too. Every other message is looked at by itself.
#[derive(Debug)]
pub(super) struct Outgoing {
    frames: Frames,
    guard: Option<BodyGuard>,
    turns: Arc<Turns>,
    kind: u8,
    /// Whether the guard may hold back the end of what was copied.
    copying: bool,
    over: bool,
}

impl Outgoing {
    /// With the guard of a session.
    pub(super) fn new(secrets: &SessionSecrets, turns: Arc<Turns>) -> Self {
        Self {
            frames: Frames::default(),
            guard: secrets.body_guard(),
            turns,
            kind: 0,
            copying: false,
            over: false,
        }
    }

    /// Whether the client has said that it leaves.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Takes a piece and appends to `out` what may be sent. At a [`Cut`] nothing more may be sent, not what `out` has either.
    pub(super) fn take(&mut self, mut piece: &[u8], out: &mut BytesMut) -> Result<(), Cut> {
        while let Some(part) = self
            .frames
            .next(&mut piece)
            .map_err(|bad| Cut::Malformed(bad.to_string()))?
        {
            match part {
                Part::Begin(kind, length) => self.begin(kind, length, out)?,
                Part::Body(body) => self.body(body, out)?,
                Part::End => self.end(out)?,
            }
        }
        Ok(())
    }

    /// Things worth a note in the log.
    pub(super) fn remarks(&self) -> Vec<String> {
        let seen = self.guard.iter().flat_map(BodyGuard::placeholders_seen);
        seen.map(|name| {
            format!("placeholder of credential `{name}` in a statement or its data, passed unchanged")
        })
        .collect()
    }

    fn begin(&mut self, kind: u8, length: usize, out: &mut BytesMut) -> Result<(), Cut> {
        if !KNOWN.contains(&kind) {
            return Err(Cut::Malformed(format!(
                "a message of kind {:?} has no place after the log-in",
                char::from(kind)
            )));
        }
        self.kind = kind;
        self.turns.asked(kind);
        if self.is_cut_anew() {
            self.copying = true;
            return Ok(());
        }
        if std::mem::take(&mut self.copying) {
            self.copy(None, out)?;
        }
        head(kind, length, out);
        Ok(())
    }

    fn body(&mut self, body: &[u8], out: &mut BytesMut) -> Result<(), Cut> {
        if self.is_cut_anew() {
            return self.copy(Some(body), out);
        }
        match &mut self.guard {
            Some(guard) => guard.push(body, out)?,
            None => out.put_slice(body),
        }
        Ok(())
    }

    fn end(&mut self, out: &mut BytesMut) -> Result<(), Cut> {
        self.over |= self.kind == TERMINATE;
        match &mut self.guard {
            Some(guard) if !self.copying => Ok(guard.finish(out)?),
            _ => Ok(()),
        }
    }

    /// A piece of what is copied, or its end.
    fn copy(&mut self, piece: Option<&[u8]>, out: &mut BytesMut) -> Result<(), Cut> {
        let Some(guard) = &mut self.guard else {
            return Ok(());
        };
        let mut settled = BytesMut::new();
        match piece {
            Some(piece) => guard.push(piece, &mut settled)?,
            None => guard.finish(&mut settled)?,
        }
        if !settled.is_empty() {
            head(COPY_DATA, settled.len(), out);
            out.unsplit(settled);
        }
        Ok(())
    }

    fn is_cut_anew(&self) -> bool {
        self.kind == COPY_DATA && self.guard.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::message::message;
    use crate::secret::{Binding, Value};
    use proptest::prelude::*;

    const SECRET: &str = "s3cretPassw0rd";

    fn outgoing() -> Outgoing {
        let binding = Binding {
            name: "db".into(),
            places: Vec::new(),
            placeholders: vec!["q7adexYbbuz1fo".into()],
            value: Some(Arc::new(Value::new(SECRET.into()))),
            ..Binding::default()
        };
        Outgoing::new(&SessionSecrets::new(vec![binding]).unwrap(), Arc::default())
    }

    /// What is let go of messages that come in pieces of this size.
    fn sent(messages: &[(u8, &str)], size: usize) -> Result<Vec<u8>, Cut> {
        let whole: Vec<u8> = messages
            .iter()
            .flat_map(|(kind, body)| message(*kind, body.as_bytes()))
            .collect();
        let (mut outgoing, mut out) = (outgoing(), BytesMut::new());
        for piece in whole.chunks(size) {
            outgoing.take(piece, &mut out)?;
        }
        Ok(out.to_vec())
    }

    /// Messages without a copy's own boundaries.
    fn read(bytes: &[u8]) -> Vec<(u8, String)> {
        let (mut frames, mut rest) = (Frames::default(), bytes);
        let mut found: Vec<(u8, String)> = Vec::new();
        while let Some(part) = frames.next(&mut rest).unwrap() {
            match part {
                Part::Begin(COPY_DATA, _) if found.last().is_some_and(|last| last.0 == COPY_DATA) => {}
                Part::Begin(kind, _) => found.push((kind, String::new())),
                Part::Body(body) => found
                    .last_mut()
                    .unwrap()
                    .1
                    .push_str(std::str::from_utf8(body).unwrap()),
                Part::End => {}
            }
        }
        assert!(frames.is_between());
        found
    }

    #[test]
    fn a_value_is_found_in_each_message_and_over_the_messages_of_a_copy() {
        let (head, tail) = SECRET.split_at(6);
        for size in [1, 3, 1000] {
            for messages in [
                &[(b'Q', "SELECT 's3cretPassw0rd'")][..],
                &[(b'P', "x"), (b'B', "s3cretPassw0rd")],
                &[(b'd', "row\n"), (b'd', head), (b'd', tail)],
                &[(b'd', head), (b'd', tail), (b'c', "")],
            ] {
                assert!(
                    matches!(sent(messages, size), Err(Cut::Leak(_))),
                    "{messages:?} by {size}"
                );
            }
            let apart = [(b'd', head), (b'c', ""), (b'd', tail), (b'c', "")];
            let apart = read(&sent(&apart, size).unwrap());
            assert_eq!(apart.len(), 4, "{apart:?}");
        }
    }

    #[test]
    fn a_password_and_unknown_messages_have_no_place_here() {
        for kind in [b'p', b'R', 0, b'W'] {
            assert!(matches!(sent(&[(kind, "x")], 100), Err(Cut::Malformed(_))));
        }
    }

    proptest! {
        #[test]
        fn everything_else_passes_as_it_is_however_it_is_cut(
            messages in prop::collection::vec((prop::sample::select(b"QPBdcHS".to_vec()), "[s3cretP ]{0,12}"), 0..10),
            size in 1usize..40,
        ) {
            let mut messages: Vec<(u8, &str)> = messages.iter().map(|(kind, body)| (*kind, body.as_str())).collect();
            messages.push((b'X', ""));
            let plain: Vec<u8> = messages.iter().flat_map(|(kind, body)| message(*kind, body.as_bytes())).collect();
            let mut expected = read(&plain);
            let mut found = read(&sent(&messages, size).unwrap());
            // A copy of nothing needs no message.
            expected.retain(|(kind, body)| *kind != COPY_DATA || !body.is_empty());
            found.retain(|(kind, body)| *kind != COPY_DATA || !body.is_empty());
            prop_assert_eq!(found, expected);
        }
    }
}
