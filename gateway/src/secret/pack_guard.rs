//! The guard over the stream of a push, the same over HTTP and ssh: values stand deflated in its pack.
use super::{BodyGuard, Leak, SessionSecrets};
use crate::git::contents::{Contents, Piece};
use bytes::BytesMut;
use std::sync::Arc;

/// Looks into the plain stream of a push.
pub struct PackGuard {
    contents: Contents,
    secrets: Arc<SessionSecrets>,
    guard: Option<BodyGuard>,
    passed: BytesMut,
}

impl PackGuard {
    /// Inflates no more than `budget` bytes; none where there is nothing to look for.
    pub fn new(secrets: Arc<SessionSecrets>, budget: u64) -> Option<Self> {
        let guard = secrets.body_guard()?;
        Some(Self {
            contents: Contents::new(budget),
            secrets,
            guard: Some(guard),
            passed: BytesMut::new(),
        })
    }

    /// Looks at the next bytes of the stream. At a [`Leak`] nothing more may be sent on.
    pub fn look(&mut self, bytes: &[u8]) -> Result<(), Leak> {
        let Self {
            contents,
            secrets,
            guard,
            passed,
        } = self;
        contents.feed(bytes, &mut |piece| {
            let Some(own) = guard else { return Ok(()) };
            match piece {
                Piece::Data(data) if own.passes(data) => Ok(()),
                Piece::Data(data) => own.push(data, passed),
                Piece::End => {
                    let ended = own.finish(passed);
                    *guard = secrets.body_guard();
                    ended
                }
            }
            .map_err(in_a_commit)?;
            passed.clear();
            Ok(())
        })
    }

    /// Whether everything so far was looked into.
    pub fn is_whole(&self) -> bool {
        self.contents.is_whole()
    }
}

/// In the words of whoever pushes.
fn in_a_commit(leak: Leak) -> Leak {
    Leak {
        sentence: format!(
            "the value of credential `{}` itself stands in what is pushed, in a file or in a commit's message; take it out of \
             these commits and push again",
            leak.credential
        ),
        ..leak
    }
}
