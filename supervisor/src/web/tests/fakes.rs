//! Fakes of the engine and the gateway: lists and maps, no behaviour of their own.
use crate::conversation::{Entry, What};
use crate::gateway::{Door, GatewayError, Policies};
use crate::machine::Attachment;
use crate::runs::{Outcome, RunRequest, RunState, RunSummary, Runs, RunsError};
use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt as _};
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, AuditRecord, Health, PolicyCheck, PolicyEdition, PolicyKey,
    PolicyVersion, Publication, Rollback, SessionSpec, SessionView, StandingPolicies, Withdrawal,
};
use sallyport_policy::{Problem, Severity};
use std::sync::Mutex;

/// Run `r` has ended after four entries, run `live` goes on after one.
#[derive(Debug, Default)]
pub(super) struct FakeRuns {
    started: Mutex<Vec<(Option<String>, RunRequest)>>,
}

impl FakeRuns {
    pub(super) fn started(&self) -> Vec<RunRequest> {
        self.started
            .lock()
            .unwrap()
            .iter()
            .map(|(_, request)| request.clone())
            .collect()
    }
}

fn summary(id: &str, state: RunState) -> RunSummary {
    RunSummary {
        id: id.to_owned(),
        title: "Title".to_owned(),
        user: "ada".to_owned(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        steps: 1,
        refusals: 0,
        state,
    }
}

fn entry(sequence: u64, what: What) -> Entry {
    Entry {
        sequence,
        at: jiff::Timestamp::UNIX_EPOCH,
        step: 1,
        attempt: 1,
        what,
    }
}

#[async_trait]
impl Runs for FakeRuns {
    async fn start(&self, request: RunRequest, key: Option<String>) -> Result<RunSummary, RunsError> {
        if request.policies[0].name == "bad" {
            let problem = Problem {
                severity: Severity::Error,
                code: Default::default(),
                message: "`x` is no rule".to_owned(),
                hint: None,
                file: "bad".to_owned(),
                line: 3,
                column: 1,
            };
            return Err(RunsError::Policy(vec![problem]));
        }
        let mut started = self.started.lock().unwrap();
        let known = started.iter().position(|(old, _)| key.is_some() && *old == key);
        let at = match known {
            Some(at) if started[at].1 == request => at,
            Some(_) => {
                return Err(RunsError::Conflict {
                    sent: "a".to_owned(),
                    known: "b".to_owned(),
                });
            }
            None => {
                started.push((key, request));
                started.len() - 1
            }
        };
        Ok(summary(&format!("run-{at}"), RunState::Queued))
    }

    async fn list(&self) -> Result<Vec<RunSummary>, RunsError> {
        Ok(vec![self.get("r").await?])
    }

    async fn get(&self, id: &str) -> Result<RunSummary, RunsError> {
        match id {
            "r" => Ok(summary(
                id,
                RunState::Ended {
                    outcome: Outcome::Done,
                    text: "done".to_owned(),
                },
            )),
            "live" => Ok(summary(
                id,
                RunState::Running {
                    doing: "thinking".to_owned(),
                },
            )),
            _ => Err(RunsError::Unknown(id.to_owned())),
        }
    }

    async fn say(&self, id: &str, _user: &str, _text: &str) -> Result<(), RunsError> {
        self.get(id).await.map(drop)
    }

    async fn stop(&self, id: &str, _user: &str) -> Result<(), RunsError> {
        self.get(id).await.map(drop)
    }

    async fn past(&self, id: &str, after: u64) -> Result<Vec<Entry>, RunsError> {
        match id {
            "live" => Ok(self.follow(id, after).await?.take(1).collect().await),
            _ => Ok(self.follow(id, after).await?.collect().await),
        }
    }

    async fn follow(&self, id: &str, after: u64) -> Result<BoxStream<'static, Entry>, RunsError> {
        let first = entry(
            1,
            What::Delta {
                text: "hal".to_owned(),
            },
        );
        if id == "live" {
            return Ok(futures_util::stream::iter([first])
                .chain(futures_util::stream::pending())
                .boxed());
        }
        let entries = vec![
            first,
            entry(
                2,
                What::Rewind {
                    from: 1,
                    why: "it broke off".to_owned(),
                },
            ),
            entry(
                3,
                What::Said {
                    text: "hello".to_owned(),
                },
            ),
            entry(
                4,
                What::Ended {
                    outcome: Outcome::Done,
                    text: "done".to_owned(),
                },
            ),
        ];
        Ok(
            futures_util::stream::iter(entries.into_iter().filter(move |entry| entry.sequence > after))
                .boxed(),
        )
    }
}

/// A gateway that knows one host, `down.test`, at which it cannot be reached.
#[derive(Debug)]
pub(super) struct FakeDoor;

fn unreachable() -> GatewayError {
    GatewayError::Unreachable {
        socket: "gateway.sock".to_owned(),
        why: "it is a fake".to_owned(),
    }
}

#[async_trait]
impl Door for FakeDoor {
    async fn health(&self) -> Result<Health, GatewayError> {
        Err(unreachable())
    }
    async fn check_policy(&self, _check: &PolicyCheck) -> Result<Vec<Problem>, GatewayError> {
        Err(unreachable())
    }
    async fn put_session(&self, _id: &str, _spec: &SessionSpec) -> Result<SessionView, GatewayError> {
        Err(unreachable())
    }
    async fn session(&self, _id: &str) -> Result<SessionView, GatewayError> {
        Err(unreachable())
    }
    async fn delete_session(&self, _id: &str) -> Result<(), GatewayError> {
        Err(unreachable())
    }
    async fn access(&self, _id: &str, _request: &AccessRequest) -> Result<AccessAnswer, GatewayError> {
        Err(unreachable())
    }
    async fn hand_over(&self, _session: &str, _attachment: Attachment) -> Result<(), GatewayError> {
        Err(unreachable())
    }
    async fn events(
        &self,
        _after: u64,
    ) -> Result<BoxStream<'static, Result<AuditRecord, GatewayError>>, GatewayError> {
        Err(unreachable())
    }
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, GatewayError> {
        match query.host.as_deref() {
            Some("down.test") => Err(unreachable()),
            _ => Ok(Vec::new()),
        }
    }
}

/// Standing policies of a gateway that keeps nothing but who asked for what.
#[derive(Debug, Default)]
pub(super) struct FakePolicies {
    asked: Mutex<Vec<String>>,
}

impl FakePolicies {
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn note(&self, what: String) -> PolicyVersion {
        self.asked.lock().unwrap().push(what);
        PolicyVersion {
            number: 2,
            hash: "h".to_owned(),
            author: "ada".to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
            note: String::new(),
            withdrawn: false,
        }
    }
}

#[async_trait]
impl Policies for FakePolicies {
    async fn policies(&self) -> Result<StandingPolicies, GatewayError> {
        Ok(StandingPolicies {
            policies: Vec::new(),
            strays: vec!["org.yml".to_owned()],
            closed: Vec::new(),
        })
    }
    async fn reload_policies(&self) -> Result<StandingPolicies, GatewayError> {
        Err(unreachable())
    }
    async fn policy_versions(&self, key: &PolicyKey) -> Result<Vec<PolicyVersion>, GatewayError> {
        Ok(vec![self.note(format!("versions of {key}"))])
    }
    async fn policy_version(&self, key: &PolicyKey, number: u64) -> Result<PolicyEdition, GatewayError> {
        Ok(PolicyEdition {
            version: self.note(format!("{number} of {key}")),
            texts: Vec::new(),
        })
    }
    async fn publish_policy(
        &self,
        key: &PolicyKey,
        publication: &Publication,
    ) -> Result<PolicyVersion, GatewayError> {
        Ok(self.note(format!("{} publishes {key}", publication.author)))
    }
    async fn roll_back_policy(
        &self,
        key: &PolicyKey,
        rollback: &Rollback,
    ) -> Result<PolicyVersion, GatewayError> {
        Ok(self.note(format!("{} rolls {key} back to {}", rollback.author, rollback.to)))
    }
    async fn withdraw_policy(
        &self,
        key: &PolicyKey,
        withdrawal: &Withdrawal,
    ) -> Result<PolicyVersion, GatewayError> {
        Ok(self.note(format!("{} withdraws {key}", withdrawal.author)))
    }
}
