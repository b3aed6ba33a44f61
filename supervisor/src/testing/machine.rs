//! A fake driver and machine: no process, commands of a few words, effects counted.
use super::door::FakeDoor;
use crate::machine::{
    Abilities, AgentRequest, Attach, Attachment, Driver, ExecCall, ExecOutcome, Machine, MachineError,
    MachineRecord, MachineSpec, OutputPiece, Shim, Status,
};
use async_trait::async_trait;
use sallyport_shim::wire::{BlockedNotice, ExecEnd, KnownCredential, Stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};

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
    pub(crate) credentials: Vec<KnownCredential>,
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
impl Attach for FakeDriver {
    async fn attach(&self, _: &MachineRecord) -> Result<Attachment, MachineError> {
        Ok(Attachment {
            redirect: Vec::new(),
            dns: Vec::new(),
        })
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

    async fn credentials(&self, known: Vec<KnownCredential>) -> Result<(), MachineError> {
        self.there()?.credentials = known;
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
