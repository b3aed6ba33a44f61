//! What stopped a request's body on its way, told to its exchange.
use crate::secret::Leak;
use crate::session::exceeded::Exceeded;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What stopped a request's body on its way.
#[derive(Debug, Clone)]
pub enum Cut {
    /// A credential was about to go where it must not.
    Leak(Leak),
    /// The same in what a push brings; the client has sent everything.
    Pushed(Leak),
    /// More than a rule lets pass.
    Limit(Exceeded),
    /// A field stands in the trailers that must not.
    Trailer(String),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leak(leak) | Self::Pushed(leak) => leak.fmt(f),
            Self::Limit(exceeded) => exceeded.fmt(f),
            Self::Trailer(name) => write!(f, "`{name}` must not stand in the trailers of a request"),
        }
    }
}

impl std::error::Error for Cut {}

/// What a request's body met on its way; shared with the exchange.
#[derive(Debug, Clone, Default)]
pub struct RequestFate(Arc<OnceLock<Cut>>);

impl RequestFate {
    /// What stopped the body, if something did.
    pub fn cut(&self) -> Option<&Cut> {
        self.0.get()
    }

    /// Something stopped it; the first is the one that counts.
    pub fn met(&self, cut: Cut) {
        let _first = self.0.set(cut);
    }
}
