//! How a command fails: a sentence for people, and an exit code.
use sallyport_gateway::control::types::Problem;

/// Exit code where a policy is invalid.
pub const INVALID_POLICY: u8 = 3;
/// Exit code where trying again later may help (`EX_TEMPFAIL` of sysexits).
pub const RETRY_LATER: u8 = 75;

/// A failed command. Shown on stderr as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// An ordinary failure, exit code 1.
    pub fn new(text: impl Into<String>) -> Self {
        Self::with_code(1, text)
    }

    /// A failure with an exit code of its own.
    pub fn with_code(code: u8, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code,
        }
    }

    /// From the supervisor's answer.
    pub fn from_problem(problem: &Problem) -> Self {
        if !problem.policy.is_empty() {
            let listed: Vec<String> = problem.policy.iter().map(ToString::to_string).collect();
            return Self::with_code(
                INVALID_POLICY,
                format!("{}\n{}", problem.detail, listed.join("\n")),
            );
        }
        let code = if problem.status == 503 { RETRY_LATER } else { 1 };
        Self::with_code(code, problem.detail.clone())
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl From<crate::state_dir::StateError> for Failure {
    fn from(error: crate::state_dir::StateError) -> Self {
        let code = if matches!(error, crate::state_dir::StateError::NoHome) {
            2
        } else {
            1
        };
        Self::with_code(code, error.to_string())
    }
}

impl From<crate::up::UpError> for Failure {
    fn from(error: crate::up::UpError) -> Self {
        let code = match error {
            crate::up::UpError::Gateway(_) => RETRY_LATER,
            crate::up::UpError::Open(_) => 2,
            _ => 1,
        };
        Self::with_code(code, error.to_string())
    }
}

impl From<crate::up::programs::ProgramError> for Failure {
    fn from(error: crate::up::programs::ProgramError) -> Self {
        Self::new(error.to_string())
    }
}
