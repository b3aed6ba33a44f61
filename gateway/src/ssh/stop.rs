//! The ways in which a command ends before or while it runs, and what agent and record are told of each.
use super::upstream::Fault;
use crate::audit::{AuditError, HELD_BACK};
use crate::control::types::Verdict;
use crate::ledger::Ledger;
use crate::secret::Leak;
use crate::session::exceeded::Exceeded;
use sallyport_policy::Refusal;

/// Why a command does not run.
#[derive(Debug)]
pub(super) enum Stop {
    /// The policy said no, or a person must say yes; the ledger has it.
    Refused(Refusal),
    /// The policy wanted to see more when there was no more; the rules that did.
    Undecided(Vec<String>),
    /// The log-in does not go with what is asked.
    LogIn(String),
    /// More than a rule lets pass.
    Limit(Exceeded),
    /// A value was about to leave.
    Leak(Leak),
    /// The upstream.
    Upstream(Fault),
    /// The record cannot be written.
    Audit(AuditError),
}

/// Why a running command is cut.
#[derive(Debug)]
pub(super) enum Cut {
    /// More than a rule lets pass.
    Limit(Exceeded),
    /// A value was about to leave.
    Leak(Leak),
    /// A push whose refs are not allowed; the ledger has it.
    Push {
        /// Git's report, where the client asked for one.
        report: Option<Vec<u8>>,
        /// Why, for standard error.
        why: String,
    },
    /// The record cannot be written.
    Audit(AuditError),
    /// Too much waits to be taken; the bound in bytes.
    Backlog(usize),
    /// The other side is gone.
    Gone,
}

impl Stop {
    /// Notes it, and gives the sentence for the agent.
    pub(super) fn note(&self, ledger: &mut Ledger, host: &str) -> String {
        match self {
            Self::Refused(refusal) => refusal.told(host),
            Self::Undecided(rules) => {
                let text = match rules.as_slice() {
                    [] => "no rule allows this".to_owned(),
                    rules => format!(
                        "rule `{}` cannot be weighed over ssh, so nothing passes",
                        rules.join("`, `")
                    ),
                };
                ledger.verdict(Verdict::Denied, text.clone());
                text
            }
            Self::LogIn(why) => {
                ledger.verdict(Verdict::Denied, why.clone());
                why.clone()
            }
            Self::Limit(exceeded) => {
                ledger.exceeded(exceeded);
                exceeded.sentence.clone()
            }
            Self::Leak(leak) => {
                ledger.verdict(Verdict::Denied, leak.sentence.clone());
                leak.sentence.clone()
            }
            Self::Upstream(fault) => {
                let text = fault.to_string();
                ledger.verdict(fault.verdict(), text.clone());
                text
            }
            Self::Audit(error) => {
                tracing::error!(%error, "a command over ssh was held back");
                "nothing passes while the gateway cannot write its log; try again later".to_owned()
            }
        }
    }

    /// As the record's ending.
    pub(super) fn ending(&self) -> &'static str {
        match self {
            Self::Audit(_) => HELD_BACK,
            _ => "refused",
        }
    }
}

impl Cut {
    /// Notes it, and gives the sentence for the agent; none where nobody is there to be told.
    pub(super) fn note(&self, ledger: &mut Ledger) -> Option<String> {
        match self {
            Self::Limit(exceeded) => {
                ledger.exceeded(exceeded);
                Some(exceeded.sentence.clone())
            }
            Self::Leak(leak) => {
                ledger.verdict(Verdict::Denied, leak.sentence.clone());
                Some(leak.sentence.clone())
            }
            Self::Backlog(bytes) => Some(format!(
                "more than {bytes} bytes of output waited to be taken while input waited too; read the output while you write"
            )),
            Self::Push { why, .. } => Some(why.clone()),
            Self::Audit(error) => {
                tracing::error!(%error, "a push over ssh was held back");
                Some("nothing passes while the gateway cannot write its log; try again later".to_owned())
            }
            Self::Gone => None,
        }
    }
}
