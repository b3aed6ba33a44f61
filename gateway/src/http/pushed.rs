//! The guard over what a push brings: values stand deflated in its pack, where no search of its bytes finds them.
//!
//! At a value nothing more is sent on, so that the push never becomes whole; what the client still sends is read over, since git
//! takes an answer only when it has sent everything.
use super::coding::{Coding, Decoder, PIECE, codings};
use crate::secret::{Leak, PackGuard, SessionSecrets};
use http::HeaderMap;
use std::sync::Arc;

/// Looks into a push as it passes.
pub struct PushGuard {
    pack: PackGuard,
    coded: Option<(Box<Decoder>, Vec<u8>)>,
    leak: Option<Leak>,
    is_readable: bool,
}

impl PushGuard {
    /// For a push with these headers; none where there is nothing to look for.
    pub fn new(headers: &HeaderMap, secrets: Arc<SessionSecrets>, budget: u64) -> Option<Self> {
        let pack = PackGuard::new(secrets, budget)?;
        let coding = codings(headers);
        let coded = match coding.as_deref() {
            Ok([Coding::Gzip]) => Some((Box::new(Decoder::new(&[Coding::Gzip])), vec![0; PIECE])),
            _ => None,
        };
        let is_readable = coded.is_some() || coding.is_ok_and(|codings| codings.is_empty());
        Some(Self {
            pack,
            coded,
            leak: None,
            is_readable,
        })
    }

    /// Looks at the next piece; whether it, and all that follows, must not be sent on.
    pub fn withholds(&mut self, piece: &[u8]) -> bool {
        if self.leak.is_none() && self.is_readable {
            self.leak = self.look(piece).err();
        }
        self.leak.is_some()
    }

    /// A value was found by another guard.
    pub fn found(&mut self, leak: Leak) {
        self.leak.get_or_insert(leak);
    }

    /// What could not be looked into, for the record.
    pub fn remark(&self) -> Option<String> {
        let whole = self.is_readable && self.pack.is_whole();
        (!whole && self.leak.is_none()).then(|| "the push was not looked into as a whole".to_owned())
    }

    /// The end of the body; the value that was found.
    pub fn finish(self) -> Option<Leak> {
        self.leak
    }

    fn look(&mut self, piece: &[u8]) -> Result<(), Leak> {
        let Some((decoder, decoded)) = &mut self.coded else {
            return self.pack.look(piece);
        };
        decoder.feed(piece);
        loop {
            match decoder.take(decoded) {
                Ok(0) => return Ok(()),
                Ok(taken) => self.pack.look(&decoded[..taken])?,
                Err(_) => {
                    self.is_readable = false;
                    return Ok(());
                }
            }
        }
    }
}
