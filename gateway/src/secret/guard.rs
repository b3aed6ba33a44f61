//! The guard over outgoing bodies: a real value never leaves in one.
use super::both::Both;
use super::leak::Leak;
use super::scanner::{Scanner, Window};
use bytes::BytesMut;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// Looks for real values in an outgoing body; the stream must be cut at the first `Leak`, before the piece is sent.
/// Placeholders pass unchanged, since they are worthless there, and are noted.
pub struct BodyGuard {
    values: Option<Window>,
    placeholders: Option<Window>,
    /// Where there are both.
    both: Option<Arc<Both>>,
    names: Arc<[String]>,
    seen: Vec<String>,
}

impl fmt::Debug for BodyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyGuard")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl BodyGuard {
    /// `both` of the two scanners, where there are two.
    pub(super) fn new(
        [values, placeholders]: [Option<Arc<Scanner>>; 2],
        both: Option<Arc<Both>>,
        names: Arc<[String]>,
    ) -> Self {
        Self {
            both,
            values: values.map(Window::new),
            placeholders: placeholders.map(Window::new),
            names,
            seen: Vec::new(),
        }
    }

    /// Whether the next piece passes as it is; it need not be pushed then.
    pub fn passes(&self, piece: &[u8]) -> bool {
        let mut windows = [&self.values, &self.placeholders].into_iter().flatten();
        match &self.both {
            Some(both) => windows.all(Window::is_idle) && both.passes(piece),
            None => windows.all(|window| window.passes(piece)),
        }
    }

    /// Looks at a piece and appends to `out` what may be sent; the rest is held back until the next call.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        self.look(Some(piece));
        let names = &self.names;
        match &mut self.values {
            Some(window) => window.push(piece, out, &mut |pattern| Err(leak(&names[pattern.owner]))),
            None => {
                out.extend_from_slice(piece);
                Ok(())
            }
        }
    }

    /// The end of the stream.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        self.look(None);
        let names = &self.names;
        match &mut self.values {
            Some(window) => window.finish(out, &mut |pattern| Err(leak(&names[pattern.owner]))),
            None => Ok(()),
        }
    }

    /// Names of credentials whose placeholder was seen in the body.
    pub fn placeholders_seen(&self) -> &[String] {
        &self.seen
    }

    fn look(&mut self, piece: Option<&[u8]>) {
        let Some(window) = &mut self.placeholders else {
            return;
        };
        let (names, seen) = (&self.names, &mut self.seen);
        let mut note = |pattern: &super::scanner::Pattern| {
            let name = &names[pattern.owner];
            if !seen.contains(name) {
                seen.push(name.clone());
            }
            Ok::<(), Infallible>(())
        };
        let mut passed = BytesMut::new();
        let Ok(()) = match piece {
            Some(piece) => window.push(piece, &mut passed, &mut note),
            None => window.finish(&mut passed, &mut note),
        };
    }
}

fn leak(name: &str) -> Leak {
    Leak::new(
        name,
        format!(
            "the value of credential `{name}` itself stands in the body; send its placeholder in the place it is bound to"
        ),
    )
}
