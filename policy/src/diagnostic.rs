//! What is wrong with a policy, where, and what to do about it.
use crate::code::Code;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

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
    /// What kind of problem.
    #[serde(default)]
    pub code: Code,
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

impl Problem {
    /// Of this kind.
    pub(crate) fn code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// With what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Whether there is an error among them.
pub(crate) fn is_broken(problems: &[Problem]) -> bool {
    problems.iter().any(|problem| problem.severity == Severity::Error)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
            ..
        } = self;
        write!(f, "{file}:{line}:{column}: {}: {message}", self.severity)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
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

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// A place in a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Position {
    /// From the parser's location; an unknown one is the file's beginning.
    pub(crate) fn new(file: &Arc<str>, location: serde_saphyr::Location) -> Self {
        let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Self {
            file: file.clone(),
            line: bounded(location.line()),
            column: bounded(location.column()),
        }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Problem {
        self.problem(Severity::Error, message.into())
    }

    pub(crate) fn warning(&self, message: impl Into<String>) -> Problem {
        self.problem(Severity::Warning, message.into())
    }

    fn problem(&self, severity: Severity, message: String) -> Problem {
        Problem {
            severity,
            code: match severity {
                Severity::Error => Code::InvalidValue,
                Severity::Warning => Code::Doubtful,
            },
            message,
            hint: None,
            file: self.file.to_string(),
            line: self.line,
            column: self.column,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A value with the place where it stands.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) at: Position,
}

impl<T> At<T> {
    /// The same place, another value.
    pub(crate) fn with<U>(&self, value: U) -> At<U> {
        At {
            value,
            at: self.at.clone(),
        }
    }
}
