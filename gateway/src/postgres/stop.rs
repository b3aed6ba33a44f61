//! Why a log-in or a connection ends before its time, in PostgreSQL's words and in the record's.
use super::message::{Malformed, Told};
use super::scram::ScramFault;
use crate::audit::HELD_BACK;
use crate::control::types::Verdict;
use crate::lasting::Over;
use crate::secret::{Absence, Leak};
use crate::session::exceeded::{Bound, Exceeded};
use crate::upstream::UpstreamFault;
use sallyport_policy::{Refusal, Remedy};
use std::io;
use std::time::Duration;

/// What stops a log-in or a connection.
#[derive(Debug)]
pub(super) enum Stop {
    /// By the policy.
    Refused(Refusal),
    /// The rules could not be weighed though all is known.
    Undecided(Vec<String>),
    /// More than a rule lets pass.
    Limit(Exceeded),
    /// A real value was about to go out.
    Leak(Leak),
    /// The client breaks the protocol.
    Client(String),
    /// The client did not say what is due in time.
    Slow(Duration),
    /// The client closed or reset the connection.
    Gone,
    /// The password is none of the placeholders.
    Password,
    /// A credential that may log in has no value.
    Unbound(Absence),
    /// The upstream cannot be reached, or not safely.
    Upstream(UpstreamFault),
    /// The upstream will not speak encrypted, and its address is a public one.
    Plain,
    /// The upstream wants something that cannot be given; what, and what to do.
    Wants(&'static str, &'static str),
    /// The upstream's own refusal; with the name of the credential that was sent.
    Rejected(Box<Told>, Option<String>),
    /// The upstream breaks the protocol, or closed in the middle.
    Broken(String),
    /// The log cannot be written.
    Audit,
    /// The gateway ends it.
    Over(Over),
}

impl From<Malformed> for Stop {
    fn from(fault: Malformed) -> Self {
        Self::Client(fault.0)
    }
}

impl From<ScramFault> for Stop {
    fn from(fault: ScramFault) -> Self {
        Self::Client(fault.to_string())
    }
}

impl From<Exceeded> for Stop {
    fn from(exceeded: Exceeded) -> Self {
        Self::Limit(exceeded)
    }
}

impl Stop {
    /// An error on the client's side of the connection.
    pub(super) fn client(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Client(error.to_string()),
            _ => Self::Gone,
        }
    }

    /// What the client prints. `id` is the decision's, `host` what was dialled.
    pub(super) fn told(&self, id: &str, host: &str) -> Told {
        let told = match self {
            Self::Refused(refusal) => return refused(refusal, id, host),
            Self::Rejected(told, used) => return rejected(told, used.as_deref(), id),
            Self::Limit(exceeded) => (limit_code(exceeded), exceeded.sentence.clone(), None),
            Self::Leak(leak) => ("42501", leak.sentence.clone(), None),
            Self::Wants(what, hint) => ("28000", (*what).to_owned(), Some((*hint).to_owned())),
            other => (other.code(), other.sentence(host), other.hint()),
        };
        let (code, message, hint) = told;
        Told {
            code: code.to_owned(),
            message: format!("sallyport: {message} (decision {id})"),
            detail: None,
            hint,
        }
    }

    /// What the record says instead of the policy's answer; none where that answer stands.
    pub(super) fn verdict(&self, host: &str) -> Option<(Verdict, String)> {
        let verdict = match self {
            Self::Refused(_) | Self::Limit(_) | Self::Gone | Self::Over(_) => return None,
            Self::Undecided(_) | Self::Leak(_) | Self::Password | Self::Plain => Verdict::Denied,
            Self::Client(_) | Self::Slow(_) => Verdict::Malformed,
            Self::Upstream(fault) => fault.verdict(),
            Self::Rejected(told, _) => {
                let text = format!(
                    "the upstream refused the log-in: {} ({})",
                    told.message, told.code
                );
                return Some((Verdict::UpstreamFailed, text));
            }
            _ => Verdict::UpstreamFailed,
        };
        Some((verdict, self.sentence(host)))
    }

    /// The record's ending.
    pub(super) fn ending(&self) -> &'static str {
        match self {
            Self::Gone => "the client went away before it was logged in",
            Self::Audit => HELD_BACK,
            Self::Over(over) => over.ending(),
            _ => "refused",
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Client(_) => "08P01",
            Self::Slow(_) => "57014",
            Self::Password => "28P01",
            Self::Unbound(Absence {
                retry_after_s: Some(_),
                ..
            }) => "57P03",
            Self::Undecided(_) | Self::Unbound(_) => "28000",
            Self::Upstream(UpstreamFault::Address(_)) | Self::Plain => "42501",
            Self::Upstream(_) => "08001",
            Self::Broken(_) => "08006",
            Self::Audit => "58030",
            Self::Over(Over::Idle) => "57P05",
            Self::Over(_) => "57P01",
            _ => "XX000",
        }
    }

    fn sentence(&self, host: &str) -> String {
        match self {
            Self::Undecided(rules) => format!("these rules could not be weighed: {}", rules.join(", ")),
            Self::Client(what) | Self::Broken(what) => what.clone(),
            Self::Slow(limit) => format!("the log-in did not end within {limit:?}"),
            Self::Password => {
                "the password is not the placeholder of a credential that may be used here".into()
            }
            Self::Unbound(absence) => absence.sentence.clone(),
            Self::Upstream(fault) => fault.to_string(),
            Self::Plain => format!(
                "`{host}` does not speak TLS, and a log-in goes unencrypted to private addresses alone"
            ),
            Self::Wants(what, _) => (*what).to_owned(),
            Self::Leak(leak) => leak.sentence.clone(),
            Self::Audit => "nothing passes until the audit log can be written again".into(),
            Self::Over(over) => match over {
                Over::Session => "terminating the connection: the session ended".into(),
                Over::Stopping => "terminating the connection: the gateway stops".into(),
                Over::Grant => "terminating the connection: the grant that it rests on has ended".into(),
                Over::Idle => "terminating the connection: nothing has moved on it for long".into(),
            },
            Self::Gone | Self::Refused(_) | Self::Limit(_) | Self::Rejected(..) => String::new(),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Password => {
                "Log in with the placeholder that stands in the environment; the gateway puts the real password in its place."
            }
            Self::Unbound(Absence {
                retry_after_s: Some(_),
                ..
            }) => "Try again in a moment.",
            Self::Unbound(_) => "The operator sets it with `secret set`, or mends its source.",
            Self::Plain => "Turn TLS on at the server.",
            Self::Upstream(UpstreamFault::Certificate(_)) => {
                "The operator adds the server's authority to the gateway, or to the environment of the run."
            }
            Self::Over(Over::Stopping) | Self::Audit => "Try again in a while.",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn limit_code(exceeded: &Exceeded) -> &'static str {
    match exceeded.bound {
        Bound::Connections => "53300",
        _ => "53400",
    }
}

/// The policy's refusal: SQLSTATE 28000, with what the agent may do about it.
fn refused(refusal: &Refusal, id: &str, host: &str) -> Told {
    let help = refusal.remedy.told(host);
    let hint = match (&refusal.hint, &refusal.remedy) {
        (Some(hint), Remedy::None) => hint.clone(),
        (Some(hint), _) => format!("{}; {help}", hint.trim_end_matches('.')),
        (None, _) => help,
    };
    Told {
        code: "28000".to_owned(),
        message: format!("sallyport: {} (decision {id})", refusal.reason.text),
        detail: Some(format!("Rule `{}`.", refusal.reason.rule)),
        hint: Some(hint),
    }
}

/// The upstream's own words, so that nobody takes its refusal of the real password for one of the placeholder.
fn rejected(told: &Told, used: Option<&str>, id: &str) -> Told {
    let whose = match used {
        Some(name) => format!(
            "The server itself says so, in answer to the value of credential `{name}` (decision {id})."
        ),
        None => format!("The server itself says so (decision {id})."),
    };
    Told {
        hint: Some(match &told.hint {
            Some(hint) => format!("{hint} {whose}"),
            None => whose,
        }),
        ..told.clone()
    }
}
