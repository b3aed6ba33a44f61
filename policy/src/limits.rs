//! How much may pass under a rule; whoever sends enforces it.
use serde::{Deserialize, Serialize};

/// Bounds of one rule for one run. `None` means no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests and streams that may be under way at once.
    pub connections: Option<u32>,
    /// Body bytes to upstream in the whole run.
    pub bytes_out: Option<u64>,
    /// Body bytes of one request.
    pub request_bytes: Option<u64>,
    /// Body bytes of one answer.
    pub response_bytes: Option<u64>,
    /// Requests and streams begun.
    pub rate: Option<Rate>,
    /// Body bytes in a second, both ways together. What is more waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
}

/// So many in so much time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many, at least 1.
    pub count: u32,
    /// In how many seconds, at least 1.
    pub seconds: u32,
}
