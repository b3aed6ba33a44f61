//! The guard over outgoing bodies: a real value never leaves in one.
use super::both::Both;
use super::leak::Leak;
use super::scanner::{Pattern, Window};
use super::shapes::Watch;
use super::{Binding, SessionSecrets};
use bytes::BytesMut;
use sallyport_policy::{OnPlaceholder, OnUnknown, Permit};
use std::fmt;
use std::sync::Arc;

/// Looks for real values in an outgoing body; the stream must be cut at the first `Leak`, before the piece is sent.
/// Placeholders pass unchanged, since they are worthless there, and are noted. A permit may say something else of each.
pub struct BodyGuard {
    values: Option<Window>,
    placeholders: Option<Window>,
    /// Where there are both.
    both: Option<Arc<Both>>,
    names: Arc<[String]>,
    seen: Vec<String>,
    /// What a permit says of what is found, where it says something.
    terms: Option<Box<Terms>>,
}

/// What a permit says of what is found.
struct Terms {
    /// A value becomes its placeholder.
    redacts: bool,
    redacted: Vec<String>,
    /// Credentials, by number, whose placeholder must not pass.
    barred: Vec<usize>,
    unknown: Option<(OnUnknown, Watch)>,
}

impl fmt::Debug for BodyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyGuard")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl SessionSecrets {
    /// A streaming guard for one outgoing body, or none where there is nothing to look for.
    pub fn body_guard(&self) -> Option<BodyGuard> {
        self.guards_bodies().then(|| self.guard(None))
    }

    /// The same under a permit. Unknown secrets are looked for in the first `bound` bytes.
    pub fn body_guard_under(&self, permit: &Permit, bound: usize) -> Option<BodyGuard> {
        let leaks = permit.leaks();
        if leaks.is_silent() {
            return self.body_guard();
        }
        let barred =
            |(number, binding): (usize, &Binding)| (!permit.carries(&binding.name)).then_some(number);
        let terms = Terms {
            redacts: leaks.redacts(),
            redacted: Vec::new(),
            barred: match leaks.placeholders {
                Some(OnPlaceholder::Refuse) => self.bindings.iter().enumerate().filter_map(barred).collect(),
                _ => Vec::new(),
            },
            unknown: leaks
                .unknown
                .map(|word| (word, Watch::new(self.placeholders.clone(), bound))),
        };
        Some(self.guard(Some(Box::new(terms))))
    }

    fn guard(&self, terms: Option<Box<Terms>>) -> BodyGuard {
        BodyGuard {
            both: self.both.clone(),
            values: self.values.clone().map(Window::new),
            placeholders: self.placeholders.clone().map(Window::new),
            names: self.names.clone(),
            seen: Vec::new(),
            terms,
        }
    }
}

impl BodyGuard {
    /// Whether what passes may differ from what came; its length is the same.
    pub fn changes(&self) -> bool {
        self.values.is_some() && self.terms.as_ref().is_some_and(|terms| terms.redacts)
    }

    /// Whether the next piece passes as it is; it need not be pushed then.
    pub fn passes(&self, piece: &[u8]) -> bool {
        if self.terms.as_ref().is_some_and(|terms| terms.unknown.is_some()) {
            return false;
        }
        let mut windows = [&self.values, &self.placeholders].into_iter().flatten();
        match &self.both {
            Some(both) => windows.all(Window::is_idle) && both.passes(piece),
            None => windows.all(|window| window.passes(piece)),
        }
    }

    /// Looks at a piece and appends to `out` what may be sent; the rest is held back until the next call.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        self.look(Some(piece))?;
        let (names, terms) = (&self.names, &mut self.terms);
        match &mut self.values {
            Some(window) => window.push(piece, out, &mut |pattern| meet(terms, pattern, names)),
            None => {
                out.extend_from_slice(piece);
                Ok(())
            }
        }
    }

    /// The end of the stream.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        self.look(None)?;
        let (names, terms) = (&self.names, &mut self.terms);
        match &mut self.values {
            Some(window) => window.finish(out, &mut |pattern| meet(terms, pattern, names)),
            None => Ok(()),
        }
    }

    /// Names of credentials whose placeholder was seen in the body.
    pub fn placeholders_seen(&self) -> &[String] {
        &self.seen
    }

    /// Things worth a note in the log of what passed in `place`; placeholders of `used` were replaced there.
    pub fn remarks(&self, place: &str, used: &[String]) -> Vec<String> {
        let seen = self.seen.iter().filter(|name| !used.contains(name));
        let seen =
            seen.map(|name| format!("placeholder of credential `{name}` in {place}, passed unchanged"));
        let redacted = self.terms.iter().flat_map(|terms| &terms.redacted);
        let redacted =
            redacted.map(|name| format!("value of credential `{name}` in {place}, its placeholder was sent"));
        let unknown = self.terms.iter().filter_map(|terms| terms.unknown.as_ref());
        let unknown = unknown.flat_map(|(_, watch)| watch.found());
        let unknown = unknown.map(|id| format!("what looks like a secret (`{id}`) in {place}, passed"));
        seen.chain(redacted).chain(unknown).collect()
    }

    fn look(&mut self, piece: Option<&[u8]>) -> Result<(), Leak> {
        let unknown = self.terms.as_mut().and_then(|terms| terms.unknown.as_mut());
        if let (Some((word, watch)), Some(piece)) = (unknown, piece) {
            watch.look(piece);
            if let (OnUnknown::Refuse, Some(id)) = (word, watch.found().first()) {
                return Err(Leak::unknown(id, "the body"));
            }
        }
        let Some(window) = &mut self.placeholders else {
            return Ok(());
        };
        let (names, seen, barred) = (&self.names, &mut self.seen, self.terms.as_ref());
        let mut note = |pattern: &Pattern| {
            let name = &names[pattern.owner];
            if barred.is_some_and(|terms| terms.barred.contains(&pattern.owner)) {
                return Err(Leak::barred(name, "the body"));
            }
            if !seen.contains(name) {
                seen.push(name.clone());
            }
            Ok(())
        };
        let mut passed = BytesMut::new();
        match piece {
            Some(piece) => window.push(piece, &mut passed, &mut note),
            None => window.finish(&mut passed, &mut note),
        }
    }
}

/// A value was found: it is replaced, or nothing may pass.
fn meet(terms: &mut Option<Box<Terms>>, pattern: &Pattern, names: &[String]) -> Result<(), Leak> {
    let name = &names[pattern.owner];
    match terms {
        Some(terms) if terms.redacts => {
            if !terms.redacted.contains(name) {
                terms.redacted.push(name.clone());
            }
            Ok(())
        }
        _ => Err(Leak::value(name, "the body")),
    }
}
