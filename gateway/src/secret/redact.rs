//! Redaction: values in what comes back become placeholders again.
use super::scanner::{Pattern, Scanner, Window};
use bytes::BytesMut;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// The search of this moment, with the names of those that own what it finds.
pub(super) type Latest = Box<dyn Fn() -> (Option<Arc<Scanner>>, Arc<[String]>) + Send + Sync>;

/// Replaces values by placeholders in a stream cut anywhere; same length in, same length out.
pub struct Redactor {
    /// None where there is nothing to look for yet.
    window: Option<Window>,
    names: Arc<[String]>,
    found: Vec<String>,
    /// A stream may outlive the secrets of its beginning.
    latest: Option<Latest>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl Redactor {
    pub(super) fn new(scanner: Option<Arc<Scanner>>, names: Arc<[String]>) -> Self {
        Self {
            window: scanner.map(Window::new),
            names,
            found: Vec::new(),
            latest: None,
        }
    }

    /// Looks for what is secret when a piece comes, not only for what was when the stream began.
    pub(super) fn following(self, latest: Latest) -> Self {
        Self {
            latest: Some(latest),
            ..self
        }
    }

    /// Whether the next piece passes as it is; it need not be pushed then.
    pub fn passes(&self, piece: &[u8]) -> bool {
        let current = self
            .latest
            .as_ref()
            .is_none_or(|latest| self.searches(latest().0.as_ref()));
        current && self.window.as_ref().is_none_or(|window| window.passes(piece))
    }

    /// Takes a piece; appends to `out` what can be let go. Holds back only what may be the beginning of a match.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) {
        self.follow();
        let Self {
            window, names, found, ..
        } = self;
        let Some(window) = window else {
            out.extend_from_slice(piece);
            return;
        };
        let Ok(()) = window.push(piece, out, &mut |pattern| note(pattern, names, found));
    }

    /// The end of the stream: lets the rest go.
    pub fn finish(&mut self, out: &mut BytesMut) {
        let Self {
            window, names, found, ..
        } = self;
        let Some(window) = window else { return };
        let Ok(()) = window.finish(out, &mut |pattern| note(pattern, names, found));
    }

    /// Names of what was found so far.
    pub fn found(&self) -> &[String] {
        &self.found
    }

    /// Whether this is what is looked for; where there is nothing any more, what was looked for before still is.
    fn searches(&self, scanner: Option<&Arc<Scanner>>) -> bool {
        match (&self.window, scanner) {
            (_, None) => true,
            (window, Some(scanner)) => window.as_ref().is_some_and(|window| window.searches(scanner)),
        }
    }

    fn follow(&mut self) {
        let Some(latest) = &self.latest else { return };
        let (scanner, names) = latest();
        if self.searches(scanner.as_ref()) {
            return;
        }
        if let Some(scanner) = scanner {
            match &mut self.window {
                Some(window) => window.search(scanner),
                None => self.window = Some(Window::new(scanner)),
            }
            self.names = names;
        }
    }
}

fn note(pattern: &Pattern, names: &[String], found: &mut Vec<String>) -> Result<(), Infallible> {
    let name = &names[pattern.owner];
    if !found.contains(name) {
        found.push(name.clone());
    }
    Ok(())
}
