//! A push over ssh, read before anything of it is sent on: its refs are decided, and a refusal is told in git's own report.
use super::link::Link;
use super::stop::{Cut, Stop};
use crate::control::types::Verdict;
use crate::git::push::{Bounds, Push, PushReader, Reading};
use crate::git::report;
use crate::ledger::Ledger;
use bytes::Bytes;
use sallyport_policy::{Decision, GitRequest, Moment, Request, SshRequest};

/// Stands before the upstream until the refs are known and allowed.
pub(super) struct Gate<'a> {
    link: &'a Link,
    wanted: Wanted,
    ledger: &'a mut Ledger,
    reader: PushReader,
    held: Vec<Bytes>,
    open: bool,
}

/// What is pushed to, by whom.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) user: String,
    pub(super) git: GitRequest,
    /// The credential that the gateway logged in with.
    pub(super) credential: Option<String>,
}

impl Wanted {
    /// The question that is asked when the push changes these refs.
    pub(super) fn question(&self, link: &Link, pushed: Vec<sallyport_policy::RefUpdate>) -> Request {
        Request {
            destination: link.destination.clone(),
            moment: Moment::Ssh(SshRequest {
                user: self.user.clone(),
                git: Some(GitRequest {
                    pushed: Some(pushed),
                    ..self.git.clone()
                }),
            }),
        }
    }
}

impl<'a> Gate<'a> {
    pub(super) fn new(link: &'a Link, wanted: Wanted, ledger: &'a mut Ledger) -> Self {
        let limits = &link.shared.limits;
        let bounds = Bounds {
            refs: limits.push_refs,
            bytes: limits.push_bytes,
        };
        Self {
            reader: PushReader::new(bounds),
            link,
            wanted,
            ledger,
            held: Vec::new(),
            open: false,
        }
    }

    /// Takes the next bytes; gives what may be sent on.
    pub(super) async fn look(&mut self, piece: Bytes) -> Result<Vec<Bytes>, Cut> {
        if self.open {
            return Ok(vec![piece]);
        }
        let read = self.reader.feed(&piece);
        self.held.push(piece);
        match read {
            Ok(Reading::NeedMore) => Ok(Vec::new()),
            Ok(Reading::Known(push)) => self.judge(push).await,
            Err(fault) => Err(self.malformed(&fault.to_string())),
        }
    }

    /// No more will come; a client that has nothing to push says nothing.
    pub(super) async fn end(&mut self) -> Result<Vec<Bytes>, Cut> {
        if self.open || self.held.is_empty() {
            return Ok(Vec::new());
        }
        match self.reader.end() {
            Ok(push) => self.judge(push).await,
            Err(fault) => Err(self.malformed(&fault.to_string())),
        }
    }

    async fn judge(&mut self, push: Push) -> Result<Vec<Bytes>, Cut> {
        let question = self.wanted.question(self.link, push.updates());
        let decided = self.link.session.decide(&question);
        self.ledger.decided(&decided);
        let stop = match decided.decision {
            Decision::Allow(permit) => match &self.wanted.credential {
                Some(name) if !permit.carries(name) => Stop::LogIn(format!(
                    "rule `{}` allows this push without credential `{name}`, which was put in",
                    permit.rule()
                )),
                _ => {
                    self.ledger.write_open().await.map_err(Cut::Audit)?;
                    self.open = true;
                    return Ok(std::mem::take(&mut self.held));
                }
            },
            Decision::Ask(refusal) | Decision::Deny(refusal) => Stop::Refused(refusal),
            Decision::Inspect => Stop::Undecided(self.link.session.undecided(&question)),
        };
        let host = self.link.destination.host.to_string();
        let mut why = stop.note(self.ledger, &host);
        if let Some(hint) = push.hint() {
            why = format!("{why}; {hint}");
        }
        let reason = format!("refused by sallyport (decision {})", self.ledger.id());
        let report = report::refused(&push, &reason, std::slice::from_ref(&why));
        Err(Cut::Push { report, why })
    }

    fn malformed(&mut self, why: &str) -> Cut {
        self.ledger.verdict(Verdict::Malformed, why);
        Cut::Push {
            report: None,
            why: why.to_owned(),
        }
    }
}
