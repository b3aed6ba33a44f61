//! A fake gateway: no socket, no policy, a log in memory.
use crate::gateway::{Door, GatewayError};
use crate::machine::Attachment;
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, AuditRecord, CredentialView, Health, PolicyCheck, SessionSpec,
    SessionView, Verdict,
};
use sallyport_policy::{Grant, Policy, Problem, Reason, Refusal, Remedy};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// A gateway that remembers sessions and a log.
pub(crate) struct FakeDoor {
    inner: Arc<Mutex<DoorInner>>,
    changed: watch::Sender<u64>,
}

pub(crate) struct DoorInner {
    pub(crate) pid: u32,
    pub(crate) reachable: bool,
    pub(crate) sessions: BTreeMap<String, SessionSpec>,
    pub(crate) ended: Vec<String>,
    pub(crate) hand_overs: Vec<String>,
    pub(crate) asked: Vec<AccessRequest>,
    pub(crate) log: Vec<AuditRecord>,
}

impl FakeDoor {
    pub(crate) fn new() -> Arc<Self> {
        let inner = DoorInner {
            pid: 1,
            reachable: true,
            sessions: BTreeMap::new(),
            ended: Vec::new(),
            hand_overs: Vec::new(),
            asked: Vec::new(),
            log: Vec::new(),
        };
        Arc::new(Self {
            inner: Arc::new(Mutex::new(inner)),
            changed: watch::Sender::new(0),
        })
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, DoorInner> {
        self.inner.lock().unwrap()
    }

    /// A new process: event streams end.
    pub(crate) fn restart(&self) {
        self.inner().pid += 1;
        self.changed.send_modify(|number| *number += 1);
    }

    pub(crate) fn refuse(&self, session: &str, host: &str) {
        let mut inner = self.inner();
        let sequence = inner.log.len() as u64 + 1;
        let reason = Reason {
            rule: "default".into(),
            text: format!("no rule names `{host}`"),
        };
        inner.log.push(AuditRecord {
            sequence,
            id: format!("decision-{sequence}"),
            session: session.into(),
            user: "ada".into(),
            host: host.into(),
            port: 443,
            method: Some("GET".into()),
            path: Some("/".into()),
            rule: "default".into(),
            reason: reason.text.clone(),
            refusal: Some(Refusal {
                reason,
                remedy: Remedy::RequestAccess,
                hint: None,
            }),
            status: Some(403),
            ending: "complete".into(),
            ..AuditRecord::of("http", Verdict::Denied)
        });
        drop(inner);
        self.changed.send_modify(|number| *number += 1);
    }

    fn reach(&self) -> Result<MutexGuard<'_, DoorInner>, GatewayError> {
        let inner = self.inner();
        if inner.reachable {
            Ok(inner)
        } else {
            Err(GatewayError::Unreachable {
                socket: "fake".into(),
                why: "it is down".into(),
            })
        }
    }
}

#[async_trait]
impl Door for FakeDoor {
    async fn health(&self) -> Result<Health, GatewayError> {
        let pid = self.reach()?.pid;
        Ok(Health {
            version: "0".into(),
            pid,
            proxy: String::new(),
        })
    }

    async fn check_policy(&self, check: &PolicyCheck) -> Result<Vec<Problem>, GatewayError> {
        drop(self.reach()?);
        Ok(Policy::compile(&check.policies).err().unwrap_or_default())
    }

    async fn put_session(&self, id: &str, spec: &SessionSpec) -> Result<SessionView, GatewayError> {
        self.reach()?.sessions.insert(id.into(), spec.clone());
        self.session(id).await
    }

    async fn session(&self, id: &str) -> Result<SessionView, GatewayError> {
        drop(self.reach()?);
        let credential = CredentialView {
            name: "token".into(),
            env: Some("TOKEN".into()),
            placeholder: format!("ph-{id}"),
            hosts: Vec::new(),
            ports: Vec::new(),
            places: Vec::new(),
            purpose: Some("for tests".into()),
            user: None,
            throughout: true,
            lender: None,
            lent_at: Vec::new(),
        };
        Ok(SessionView {
            id: id.into(),
            policy_hash: String::new(),
            proxy_token: "proxy-password".into(),
            ca_pem: "ca".into(),
            ssh_host_key: "* ssh-ed25519 KEY".into(),
            credentials: vec![credential],
            warnings: Vec::new(),
            broken: Vec::new(),
        })
    }

    async fn delete_session(&self, id: &str) -> Result<(), GatewayError> {
        let mut inner = self.reach()?;
        inner.sessions.remove(id);
        inner.ended.push(id.into());
        Ok(())
    }

    async fn access(&self, _: &str, request: &AccessRequest) -> Result<AccessAnswer, GatewayError> {
        self.reach()?.asked.push(request.clone());
        let grant = Grant {
            credential: None,
            id: "g".into(),
            rule: "default".into(),
            host: request.wanted.host.clone(),
            port: request.wanted.port,
            methods: Vec::new(),
            path: None,
            uses: Some(5),
            expires_at: jiff::Timestamp::UNIX_EPOCH,
            by: "policy".into(),
        };
        Ok(AccessAnswer::Granted { grant })
    }

    async fn hand_over(&self, session: &str, _: Attachment) -> Result<(), GatewayError> {
        self.reach()?.hand_overs.push(session.into());
        Ok(())
    }

    async fn events(
        &self,
        after: u64,
    ) -> Result<BoxStream<'static, Result<AuditRecord, GatewayError>>, GatewayError> {
        let pid = self.reach()?.pid;
        let reader = (Arc::clone(&self.inner), self.changed.subscribe(), after);
        let stream = stream::unfold(reader, move |(inner, mut changed, after)| async move {
            loop {
                changed.borrow_and_update();
                let (now, next) = {
                    let inner = inner.lock().unwrap();
                    (
                        inner.pid,
                        inner.log.iter().find(|record| record.sequence > after).cloned(),
                    )
                };
                if now != pid {
                    return None;
                }
                if let Some(record) = next {
                    let after = record.sequence;
                    return Some((Ok(record), (inner, changed, after)));
                }
                changed.changed().await.ok()?;
            }
        });
        Ok(stream.boxed())
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, GatewayError> {
        let inner = self.reach()?;
        let mut found: Vec<AuditRecord> = inner
            .log
            .iter()
            .rev()
            .filter(|record| Some(&record.session) == query.session.as_ref())
            .cloned()
            .collect();
        found.truncate(query.limit.unwrap_or(100) as usize);
        Ok(found)
    }
}
