//! Fakes of the gateway and of machines, for tests of the engine alone. They count effects and keep what survives a kill.
use crate::conversation::{Entry, What};
use crate::gateway::{Door, GatewayError};
use crate::machine::{
    Abilities, AgentRequest, Attachment, Driver, ExecCall, ExecOutcome, Machine, MachineError, MachineRecord,
    MachineSpec, OutputPiece, Shim, Status,
};
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, AuditRecord, CredentialView, Health, SessionSpec, SessionView,
    Verdict,
};
use sallyport_policy::{Grant, Reason, Refusal, Remedy};
use sallyport_shim::wire::{BlockedNotice, ExecEnd, Stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};

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
            at: jiff::Timestamp::now(),
            session: session.into(),
            user: "ada".into(),
            kind: "http".into(),
            host: host.into(),
            port: 443,
            method: Some("GET".into()),
            path: Some("/".into()),
            verdict: Verdict::Denied,
            rule: "default".into(),
            reason: reason.text.clone(),
            refusal: Some(Refusal {
                reason,
                remedy: Remedy::RequestAccess,
                hint: None,
            }),
            policy_hash: String::new(),
            status: Some(403),
            bytes_out: 0,
            bytes_in: 0,
            duration_ms: 0,
            credentials_used: Vec::new(),
            credentials_redacted: Vec::new(),
            ending: "complete".into(),
            chain: String::new(),
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

    async fn put_session(&self, id: &str, spec: &SessionSpec) -> Result<SessionView, GatewayError> {
        self.reach()?.sessions.insert(id.into(), spec.clone());
        let credential = CredentialView {
            name: "token".into(),
            env: Some("TOKEN".into()),
            placeholder: format!("ph-{id}"),
            hosts: Vec::new(),
        };
        Ok(SessionView {
            id: id.into(),
            policy_hash: String::new(),
            proxy_token: "proxy-password".into(),
            ca_pem: "ca".into(),
            credentials: vec![credential],
            warnings: Vec::new(),
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

/// Machines that outlive the engine, as those of a real driver do.
pub(crate) struct FakeDriver {
    pub(crate) door: Arc<FakeDoor>,
    machines: Mutex<BTreeMap<String, Arc<FakeMachine>>>,
}

/// One machine. Its commands: `echo TEXT`, `fail`, `refuse HOST` (asks the gateway, which refuses), `wait` (until cancelled
/// or released), `die` (the machine is gone).
pub(crate) struct FakeMachine {
    id: String,
    door: Arc<FakeDoor>,
    inner: Mutex<MachineInner>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
pub(crate) struct MachineInner {
    pub(crate) gone: bool,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// How often each command had its effect.
    pub(crate) effects: BTreeMap<String, u32>,
    pub(crate) ends: BTreeMap<String, (String, ExecEnd)>,
    pub(crate) cancelled: Vec<String>,
    pub(crate) notices: Vec<BlockedNotice>,
    pub(crate) requests: VecDeque<AgentRequest>,
    pub(crate) answers: Vec<(String, bool, String)>,
    pub(crate) released: bool,
}

impl FakeDriver {
    pub(crate) fn new(door: Arc<FakeDoor>) -> Arc<Self> {
        Arc::new(Self {
            door,
            machines: Mutex::default(),
        })
    }

    pub(crate) fn machine(&self, id: &str) -> Option<Arc<FakeMachine>> {
        self.machines.lock().unwrap().get(id).cloned()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.machines.lock().unwrap().keys().cloned().collect()
    }
}

#[async_trait]
impl Driver for FakeDriver {
    fn kind(&self) -> &'static str {
        "fake"
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    async fn probe(&self) -> Result<(), MachineError> {
        Ok(())
    }

    async fn create(&self, spec: &MachineSpec) -> Result<MachineRecord, MachineError> {
        let machine = || {
            Arc::new(FakeMachine {
                id: spec.id.clone(),
                door: Arc::clone(&self.door),
                inner: Mutex::default(),
                changed: watch::Sender::new(0),
            })
        };
        self.machines
            .lock()
            .unwrap()
            .entry(spec.id.clone())
            .or_insert_with(machine);
        Ok(MachineRecord {
            id: spec.id.clone(),
            driver: "fake".into(),
            facts: serde_json::Value::Null,
        })
    }

    async fn attach(&self, _: &MachineRecord) -> Result<Attachment, MachineError> {
        Ok(Attachment {
            redirect: Vec::new(),
            dns: Vec::new(),
        })
    }

    async fn connect(&self, record: &MachineRecord) -> Result<Machine, MachineError> {
        let machine = self.machine(&record.id).filter(|machine| !machine.inner().gone);
        machine
            .map(|machine| machine as Machine)
            .ok_or_else(|| MachineError::Gone(record.id.clone()))
    }

    async fn status(&self, record: &MachineRecord) -> Result<Status, MachineError> {
        let there = self
            .machine(&record.id)
            .is_some_and(|machine| !machine.inner().gone);
        Ok(if there { Status::Running } else { Status::Gone })
    }

    async fn destroy(&self, record: &MachineRecord) -> Result<(), MachineError> {
        if let Some(machine) = self.machines.lock().unwrap().remove(&record.id) {
            machine.die();
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<MachineRecord>, MachineError> {
        let record = |id: String| MachineRecord {
            id,
            driver: "fake".into(),
            facts: serde_json::Value::Null,
        };
        Ok(self.ids().into_iter().map(record).collect())
    }
}

impl FakeMachine {
    pub(crate) fn inner(&self) -> MutexGuard<'_, MachineInner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn die(&self) {
        self.inner().gone = true;
        self.changed.send_modify(|number| *number += 1);
    }

    /// Lets `wait` end.
    pub(crate) fn release(&self) {
        self.inner().released = true;
        self.changed.send_modify(|number| *number += 1);
    }

    pub(crate) fn ask(&self, request: AgentRequest) {
        self.inner().requests.push_back(request);
        self.changed.send_modify(|number| *number += 1);
    }

    /// Until it is so.
    pub(crate) async fn until(&self, holds: impl Fn(&MachineInner) -> bool) {
        let mut changed = self.changed.subscribe();
        while !holds(&self.inner()) {
            changed.changed().await.unwrap();
        }
    }

    fn there(&self) -> Result<MutexGuard<'_, MachineInner>, MachineError> {
        let inner = self.inner();
        if inner.gone {
            Err(MachineError::Gone(self.id.clone()))
        } else {
            Ok(inner)
        }
    }

    /// The command's effect, once for an id.
    fn effect(&self, call: &ExecCall) -> Result<(), MachineError> {
        if self.there()?.effects.contains_key(&call.id) {
            return Ok(());
        }
        *self.there()?.effects.entry(call.id.clone()).or_default() += 1;
        let command = call.argv.last().cloned().unwrap_or_default();
        let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
        let end = match word {
            "echo" => Some((rest.to_owned(), 0)),
            "fail" => Some(("it failed".into(), 1)),
            "refuse" => {
                let run = self.there()?.env["SALLYPORT_RUN"].clone();
                self.door.refuse(&run, rest);
                Some(("403".into(), 22))
            }
            "die" => {
                self.die();
                None
            }
            _ => None,
        };
        if let Some((text, code)) = end {
            self.inner()
                .ends
                .insert(call.id.clone(), (text, ExecEnd::Code { code }));
        }
        self.changed.send_modify(|number| *number += 1);
        Ok(())
    }
}

#[async_trait]
impl Shim for FakeMachine {
    async fn setup(&self, _: &str, env: &BTreeMap<String, String>) -> Result<Vec<String>, MachineError> {
        self.there()?.env = env.clone();
        Ok(Vec::new())
    }

    async fn exec(
        &self,
        call: &ExecCall,
        output: mpsc::Sender<OutputPiece>,
    ) -> Result<ExecOutcome, MachineError> {
        self.effect(call)?;
        let mut changed = self.changed.subscribe();
        loop {
            let end = {
                let inner = self.there()?;
                let released = inner
                    .released
                    .then(|| ("released".to_owned(), ExecEnd::Code { code: 0 }));
                inner.ends.get(&call.id).cloned().or(released)
            };
            if let Some((text, end)) = end {
                let bytes = bytes::Bytes::from(text);
                let _ = output
                    .send(OutputPiece {
                        stream: Stream::Out,
                        bytes,
                    })
                    .await;
                return Ok(ExecOutcome {
                    end,
                    full_output: None,
                });
            }
            changed
                .changed()
                .await
                .map_err(|_| MachineError::Gone(self.id.clone()))?;
        }
    }

    async fn cancel(&self, id: &str) -> Result<(), MachineError> {
        let mut inner = self.there()?;
        inner.cancelled.push(id.into());
        inner
            .ends
            .entry(id.into())
            .or_insert((String::new(), ExecEnd::Cancelled));
        drop(inner);
        self.changed.send_modify(|number| *number += 1);
        Ok(())
    }

    async fn write_file(&self, path: &str, content: &[u8], _: u32) -> Result<(), MachineError> {
        self.there()?.files.insert(path.into(), content.to_vec());
        Ok(())
    }

    async fn read_file(&self, path: &str, _: u64, _: u64) -> Result<(Vec<u8>, u64), MachineError> {
        let file = self.there()?.files.get(path).cloned();
        let file = file.ok_or_else(|| MachineError::Call(format!("there is no file `{path}`")))?;
        let size = file.len() as u64;
        Ok((file, size))
    }

    async fn blocked(&self, notice: BlockedNotice) -> Result<(), MachineError> {
        self.there()?.notices.push(notice);
        self.changed.send_modify(|number| *number += 1);
        Ok(())
    }

    async fn next_request(&self) -> Option<AgentRequest> {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(request) = self.there().ok()?.requests.pop_front() {
                return Some(request);
            }
            changed.changed().await.ok()?;
        }
    }

    async fn answer(&self, id: &str, granted: bool, text: &str) -> Result<(), MachineError> {
        self.there()?.answers.push((id.into(), granted, text.into()));
        self.changed.send_modify(|number| *number += 1);
        Ok(())
    }
}

/// What a client shows that took these entries one after another: a rewind takes void ones away, final text replaces pieces.
pub(crate) fn shown(entries: &[Entry]) -> Vec<Entry> {
    let mut view: Vec<Entry> = Vec::new();
    for entry in entries {
        let (step, attempt) = (entry.step, entry.attempt);
        match &entry.what {
            What::Rewind { from, .. } => {
                view.retain(|old| old.step != step || old.attempt >= attempt || old.sequence < *from);
                continue;
            }
            What::Said { .. } => {
                view.retain(|old| old.step != step || !matches!(old.what, What::Delta { .. }))
            }
            What::Result { call, .. } => {
                view.retain(|old| !matches!(&old.what, What::Output { call: other, .. } if other == call));
            }
            _ => {}
        }
        view.push(entry.clone());
    }
    view
}
