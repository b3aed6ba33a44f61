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

impl Leak {
    /// A real value stands in `place`.
    pub(in crate::secret) fn value(name: &str, place: &str) -> Self {
        Self::new(
            name,
            format!(
                "the value of credential `{name}` itself stands in {place}; send its placeholder in the place it is bound to"
            ),
        )
    }

    /// A placeholder stands in `place`, where a rule lets none pass.
    pub(in crate::secret) fn barred(name: &str, place: &str) -> Self {
        Self::new(
            name,
            format!(
                "the placeholder of credential `{name}` stands in {place}, and the policy lets none pass here; leave it out"
            ),
        )
    }

    /// What looks like a secret of the form `id` stands in `place`.
    pub(in crate::secret) fn unknown(id: &str, place: &str) -> Self {
        Self::new(
            "",
            format!(
                "what looks like a secret (`{id}`) stands in {place}, and the policy lets none pass here; leave it out, or ask for a \
                 credential whose placeholder can be sent"
            ),
        )
    }
}
