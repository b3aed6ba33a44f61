//! Request paths in the one form that is decided and sent.

/// A path after RFC 3986 section 6 normalisation. What is decided is what is sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalPath {
    text: String,
    ambiguity: Option<String>,
}

/// Why a path is malformed (answered with 400).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path is malformed: {0}")]
pub struct PathFault(pub String);

impl CanonicalPath {
    /// Normalises the path of a request target (no query, no fragment).
    pub fn parse(raw: &str) -> Result<Self, PathFault> {
        let _ = raw;
        todo!()
    }
    /// The canonical text, beginning with `/`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
    /// Why two servers may read this path differently, if they may: no rule with paths allows it then.
    pub fn ambiguity(&self) -> Option<&str> {
        self.ambiguity.as_deref()
    }
}
