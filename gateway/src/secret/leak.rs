//! Why a request must not go out: a secret was about to go where it must not.

/// Why a request must not go out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Leak {
    /// The credential's name.
    pub credential: String,
    /// Sentence for the refusal: place and name, never the value.
    pub sentence: String,
    /// Seconds after which the same may pass, where the value alone is missing and its source may have it then.
    pub retry_after_s: Option<u64>,
}

impl Leak {
    /// What will not pass later either. `credential` may be empty where none is known.
    pub fn new(credential: &str, sentence: impl Into<String>) -> Self {
        Self {
            credential: credential.to_owned(),
            sentence: sentence.into(),
            retry_after_s: None,
        }
    }
}
