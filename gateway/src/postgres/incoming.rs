//! PURE: what the upstream says after the log-in, with values taken out and the key of its cancel requests replaced.
use super::frames::{Frames, Part};
use super::message::{Key, head, key_data, key_message};
use super::turns::{READY, Turns};
use crate::secret::Redactor;
use bytes::{BufMut, BytesMut};
use std::sync::Arc;

/// Messages of a server after a log-in (documentation, 55.7), without those of replication.
const KNOWN: &[u8] = b"123ACDEGHIKNSTVZcdnst";
const KEY_DATA: u8 = b'K';
/// Longest body of `BackendKeyData`.
const KEY_BODY: usize = 4 + 256;

/// The upstream breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the upstream breaks the protocol: {0}")]
pub(super) struct Broken(String);

/// Takes the upstream's bytes, lets go what the client may see.
///
/// A placeholder is as long as its value in each of its forms, so that no length of a message or of a column changes.
#[derive(Debug)]
pub(super) struct Incoming<F> {
    frames: Frames,
    redactor: Option<Redactor>,
    turns: Arc<Turns>,
    kind: u8,
    /// The key that is being read.
    key: Option<Vec<u8>>,
    own_key: F,
}

impl<F: FnMut(Key) -> Option<Key>> Incoming<F> {
    /// With a session's redactor. `own_key` turns the upstream's key into the one that the client is told; none for no key.
    pub(super) fn new(redactor: Option<Redactor>, turns: Arc<Turns>, own_key: F) -> Self {
        Self {
            frames: Frames::default(),
            redactor,
            turns,
            kind: 0,
            key: None,
            own_key,
        }
    }

    /// Takes a piece and appends to `out` what can be let go. With `to_end` only the rest of a message that has begun.
    pub(super) fn take(&mut self, mut piece: &[u8], to_end: bool, out: &mut BytesMut) -> Result<(), Broken> {
        while !(to_end && self.frames.is_between()) {
            let part = self
                .frames
                .next(&mut piece)
                .map_err(|bad| Broken(bad.to_string()))?;
            match part {
                None => break,
                Some(Part::Begin(kind, length)) => self.begin(kind, length, out)?,
                Some(Part::Body(body)) => self.body(body, out),
                Some(Part::End) => self.end(out)?,
            }
        }
        Ok(())
    }

    /// Whether the client is between two messages.
    pub(super) fn is_between(&self) -> bool {
        self.frames.is_between()
    }

    /// Names of credentials whose value was taken out.
    pub(super) fn redacted(&self) -> Vec<String> {
        self.redactor.iter().flat_map(Redactor::found).cloned().collect()
    }

    fn begin(&mut self, kind: u8, length: usize, out: &mut BytesMut) -> Result<(), Broken> {
        if !KNOWN.contains(&kind) {
            return Err(Broken(format!("a message of kind {:?}", char::from(kind))));
        }
        self.kind = kind;
        if kind != KEY_DATA {
            head(kind, length, out);
            return Ok(());
        }
        if length > KEY_BODY {
            return Err(Broken("a key of a wrong length".to_owned()));
        }
        self.key = Some(Vec::with_capacity(length));
        Ok(())
    }

    fn body(&mut self, body: &[u8], out: &mut BytesMut) {
        if let (READY, [status]) = (self.kind, body) {
            self.turns.answered(*status);
        }
        match (&mut self.key, &mut self.redactor) {
            (Some(key), _) => key.extend_from_slice(body),
            (None, Some(redactor)) => redactor.push(body, out),
            (None, None) => out.put_slice(body),
        }
    }

    fn end(&mut self, out: &mut BytesMut) -> Result<(), Broken> {
        if let Some(body) = self.key.take() {
            let key = key_data(&body).map_err(|fault| Broken(fault.0))?;
            if let Some(own) = (self.own_key)(key) {
                out.unsplit(key_message(&own));
            }
            return Ok(());
        }
        if let Some(redactor) = &mut self.redactor {
            redactor.finish(out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::message::message;
    use crate::secret::{Binding, SessionSecrets, Value};
    use proptest::prelude::*;

    const SECRET: &str = "s3cretPassw0rd";
    const PLACEHOLDER: &str = "q7adexYbbuz1fo";

    fn secrets() -> SessionSecrets {
        let binding = Binding {
            name: "db".into(),
            places: Vec::new(),
            placeholders: vec![PLACEHOLDER.into()],
            value: Some(Arc::new(Value::new(SECRET.into()))),
            ..Binding::default()
        };
        SessionSecrets::new(vec![binding]).unwrap()
    }

    fn key(number: u8) -> Key {
        Key {
            process: u32::from(number),
            secret: vec![number; 4],
        }
    }

    proptest! {
        #[test]
        fn values_and_keys_are_replaced_however_the_stream_is_cut(
            bodies in prop::collection::vec(prop::sample::select(vec!["", "s3cret", SECRET, "xs3cretPassw0rdy"]), 0..8),
            size in 1usize..60,
        ) {
            let stream = |bodies: &[String], key: &Key| -> Vec<u8> {
                let rows = bodies.iter().flat_map(|body| message(b'D', body.as_bytes()));
                key_message(key).into_iter().chain(rows).collect()
            };
            let bodies: Vec<String> = bodies.into_iter().map(str::to_owned).collect();
            let clean: Vec<String> = bodies.iter().map(|body| body.replace(SECRET, PLACEHOLDER)).collect();
            let secrets = secrets();
            let mut incoming = Incoming::new(secrets.redactor(), Arc::default(), |told| (told == key(1)).then(|| key(2)));
            let mut out = BytesMut::new();
            for piece in stream(&bodies, &key(1)).chunks(size) {
                incoming.take(piece, false, &mut out).unwrap();
            }
            prop_assert!(incoming.is_between());
            prop_assert_eq!(out.to_vec(), stream(&clean, &key(2)));
        }
    }

    #[test]
    fn the_rest_of_a_message_is_all_that_is_taken_where_only_that_is_wanted() {
        let mut incoming = Incoming::new(secrets().redactor(), Arc::default(), Some);
        let (mut out, two) = (
            BytesMut::new(),
            [message(b'D', b"one"), message(b'D', b"two")].concat(),
        );
        incoming.take(&two[..6], false, &mut out).unwrap();
        assert!(!incoming.is_between());
        incoming.take(&two[6..], true, &mut out).unwrap();
        assert!(incoming.is_between());
        assert_eq!(out.to_vec(), two[..8]);
    }

    #[test]
    fn a_second_log_in_and_replication_have_no_place_here() {
        for kind in [b'R', b'W', b'v', b'p'] {
            let asked = message(kind, &[0, 0, 0, 3]);
            assert!(
                Incoming::new(secrets().redactor(), Arc::default(), Some)
                    .take(&asked, false, &mut BytesMut::new())
                    .is_err()
            );
        }
    }
}
