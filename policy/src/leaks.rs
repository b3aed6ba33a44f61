//! What becomes of secrets in a request that is allowed: the words of `leaks`.
use std::fmt;

/// What rules and policies say of secrets in requests; what is absent is as it is by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaks {
    /// A value that the gateway knows; refused by default.
    pub values: Option<OnValue>,
    /// A placeholder where no credential is bound to; refused in a credential's place, else passed, by default.
    pub placeholders: Option<OnPlaceholder>,
    /// What looks like a secret that the gateway does not know; not looked for by default.
    pub unknown: Option<OnUnknown>,
}

/// What becomes of a value that the gateway knows. The stricter word is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnValue {
    /// Its placeholder takes its place.
    Redact,
    /// The request is refused.
    Refuse,
}

/// What becomes of a placeholder that stands where no credential is bound to. The stricter word is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnPlaceholder {
    /// In a header for credentials: the header is taken off. Elsewhere it passes.
    Strip,
    /// The request is refused wherever it stands.
    Refuse,
}

/// What becomes of a request with what looks like a secret. The stricter word is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnUnknown {
    /// It passes, with a remark in the log.
    Log,
    /// It is refused.
    Refuse,
}

impl Leaks {
    /// What two of them say together: the stricter of two words, and a word rather than none.
    pub fn and(self, other: Self) -> Self {
        Self {
            values: self.values.max(other.values),
            placeholders: self.placeholders.max(other.placeholders),
            unknown: self.unknown.max(other.unknown),
        }
    }

    /// Whether nothing is said.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// Whether real values become placeholders.
    pub fn redacts(&self) -> bool {
        self.values == Some(OnValue::Redact)
    }
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.values.map(|word| match word {
                OnValue::Redact => "values redacted",
                OnValue::Refuse => "values refused",
            }),
            self.placeholders.map(|word| match word {
                OnPlaceholder::Strip => "placeholders stripped",
                OnPlaceholder::Refuse => "placeholders refused",
            }),
            self.unknown.map(|word| match word {
                OnUnknown::Log => "unknown secrets logged",
                OnUnknown::Refuse => "unknown secrets refused",
            }),
        ];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_word_holds_and_any_word_is_more_than_none() {
        let redacts = Leaks {
            values: Some(OnValue::Redact),
            ..Leaks::default()
        };
        let refuses = Leaks {
            values: Some(OnValue::Refuse),
            unknown: Some(OnUnknown::Log),
            ..Leaks::default()
        };
        assert_eq!(redacts.and(Leaks::default()), redacts);
        assert_eq!(redacts.and(refuses), refuses);
        assert!(!redacts.and(refuses).redacts() && redacts.redacts());
        assert_eq!(refuses.to_string(), "values refused, unknown secrets logged");
    }
}
