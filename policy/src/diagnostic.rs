//! What is wrong with a policy, where, and what to do about it.
use serde::{Deserialize, Serialize};

/// A policy file as text, with the name under which it is reported and included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyText {
    /// File name, or `preset:NAME`.
    pub name: String,
    /// YAML.
    pub text: String,
}

/// One problem of a policy file. `Display` prints `file:line:column: message` and the hint on a second line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong, lower case, input in backticks.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy cannot be used.
    Error,
    /// The policy can be used, and somebody should look.
    Warning,
}
