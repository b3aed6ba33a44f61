//! Redaction: values in what comes back become placeholders again.
use super::scanner::{Pattern, Scanner, Window};
use bytes::BytesMut;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// Replaces values by placeholders in a stream cut anywhere; same length in, same length out.
pub struct Redactor {
    window: Window,
    names: Arc<[String]>,
    found: Vec<String>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl Redactor {
    pub(super) fn new(scanner: Arc<Scanner>, names: Arc<[String]>) -> Self {
        Self {
            window: Window::new(scanner),
            names,
            found: Vec::new(),
        }
    }

    /// Whether the next piece passes as it is; it need not be pushed then.
    pub fn passes(&self, piece: &[u8]) -> bool {
        self.window.passes(piece)
    }

    /// Takes a piece; appends to `out` what can be let go. Holds back only what may be the beginning of a match.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) {
        let Self { window, names, found } = self;
        let Ok(()) = window.push(piece, out, &mut |pattern| note(pattern, names, found));
    }

    /// The end of the stream: lets the rest go.
    pub fn finish(&mut self, out: &mut BytesMut) {
        let Self { window, names, found } = self;
        let Ok(()) = window.finish(out, &mut |pattern| note(pattern, names, found));
    }

    /// Names of what was found so far.
    pub fn found(&self) -> &[String] {
        &self.found
    }
}

fn note(pattern: &Pattern, names: &[String], found: &mut Vec<String>) -> Result<(), Infallible> {
    let name = &names[pattern.owner];
    if !found.contains(name) {
        found.push(name.clone());
    }
    Ok(())
}
