//! Why a request must not go out: a secret was about to go where it must not.

/// Why a request must not go out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Leak {
    /// The credential's name.
    pub credential: String,
    /// Sentence for the refusal: place and name, never the value.
    pub sentence: String,
}
