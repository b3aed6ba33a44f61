//! Whole runs against fake gateway and machines, real journal rules, real conversations, real scripted model.
mod crash;
mod lives;
mod rules;

use super::*;
use crate::conversation::Entry;
use crate::conversation::What;
use crate::engine::journal::{Begun, Key, Record};
use crate::model::ModelConfig;
use crate::run::event::Event;
use crate::runs::{Environment, ModelChoice, RunRequest, RunState, Runs as _};
use crate::testing::{FakeDoor, FakeDriver, shown};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use sallyport_policy::PolicyText;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// All that survives a kill, and the fakes.
pub(super) struct World {
    pub(super) door: Arc<FakeDoor>,
    pub(super) driver: Arc<FakeDriver>,
    pub(super) journal: Arc<MemoryJournal>,
    pub(super) conversations: Conversations,
    _folder: tempfile::TempDir,
}

impl World {
    pub(super) async fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)
        } else {
            tempfile::tempdir()
        };
        let folder = folder.unwrap();
        let door = FakeDoor::new();
        Self {
            driver: FakeDriver::new(Arc::clone(&door)),
            door,
            journal: Arc::default(),
            conversations: Conversations::open(&folder.path().join("c.redb")).await.unwrap(),
            _folder: folder,
        }
    }

    pub(super) async fn engine(&self) -> Arc<Engine> {
        self.engine_until(CancellationToken::new()).await
    }

    pub(super) async fn engine_until(&self, closing: CancellationToken) -> Arc<Engine> {
        let hands = Hands {
            door: Arc::clone(&self.door) as Arc<dyn Door>,
            driver: Arc::clone(&self.driver) as Arc<dyn Driver>,
            models: Models::new(ModelConfig::default()).unwrap(),
            conversations: self.conversations.clone(),
            patience: Patience {
                first: Duration::from_millis(1),
                longest: Duration::from_millis(5),
                times: 3,
            },
            heard: tokio::sync::watch::Sender::new(0),
        };
        Engine::assemble(
            Arc::clone(&self.journal) as Arc<dyn Journal>,
            Arc::new(hands),
            None,
            closing,
        )
        .await
        .unwrap()
    }
}

pub(super) fn request(turns: &str) -> RunRequest {
    RunRequest {
        title: "a test".into(),
        task: "mend it".into(),
        who: sallyport_policy::Who {
            user: "ada".into(),
            ..Default::default()
        },
        policies: vec![PolicyText {
            name: "p.yaml".into(),
            text: "version: 1\nname: t\n".into(),
        }],
        model: ModelChoice::Scripted { turns: turns.into() },
        environment: Environment {
            files: BTreeMap::from([("/a".into(), "text".into())]),
            ..Default::default()
        },
        step_limit: None,
    }
}

/// The whole conversation, once the run is over.
pub(super) async fn to_end(engine: &Engine, run: &str) -> Vec<Entry> {
    let entries = engine.follow(run, 0).await.unwrap().collect::<Vec<_>>();
    tokio::time::timeout(Duration::from_secs(60), entries)
        .await
        .expect("the run ends")
}

/// Until the run's state is so.
pub(super) async fn until_state(engine: &Engine, run: &str, holds: impl Fn(&RunState) -> bool) {
    let wait = async {
        while !holds(&engine.get(run).await.unwrap().state) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("the state comes");
}

/// A journal in memory that can break at any append, before or after it took the record.
#[derive(Default)]
pub(super) struct MemoryJournal {
    pub(super) kept: Mutex<Kept>,
    pub(super) cut: Mutex<Option<Cut>>,
}

#[derive(Default, Clone)]
pub(super) struct Kept {
    pub(super) records: BTreeMap<String, Vec<Record>>,
    pub(super) heads: BTreeMap<String, Head>,
    pub(super) keys: BTreeMap<String, (String, String)>,
    pub(super) audit: u64,
}

/// When to break, and what dies with it.
pub(super) struct Cut {
    pub(super) left: usize,
    pub(super) keeps: bool,
    pub(super) process: CancellationToken,
}

impl MemoryJournal {
    /// Whether this append is the one that breaks: whether it is kept then.
    fn breaks(&self) -> Option<bool> {
        let mut cut = self.cut.lock().unwrap();
        let cut = cut.as_mut()?;
        if cut.left > 0 {
            cut.left -= 1;
            return None;
        }
        let again = cut.process.is_cancelled();
        cut.process.cancel();
        Some(cut.keeps && !again)
    }

    fn keep(&self, head: Head, record: Record) -> Result<(), JournalError> {
        let mut kept = self.kept.lock().unwrap();
        let run = head.summary.id.clone();
        let records = kept.records.entry(run.clone()).or_default();
        if record.sequence != records.len() as u64 + 1 {
            return Err(JournalError::Taken {
                run,
                sequence: record.sequence,
            });
        }
        records.push(record);
        kept.heads.insert(run, head);
        Ok(())
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn begin(&self, key: Option<Key>, head: Head, record: Record) -> Result<Begun, JournalError> {
        let breaks = self.breaks();
        if breaks != Some(false) {
            if let Some(key) = key {
                let mut kept = self.kept.lock().unwrap();
                if let Some((run, request)) = kept.keys.get(&key.key).cloned() {
                    return Ok(Begun::Known { run, request });
                }
                kept.keys.insert(key.key, (head.summary.id.clone(), key.request));
            }
            self.keep(head, record)?;
        }
        if breaks.is_some() {
            Err(JournalError::Closed)
        } else {
            Ok(Begun::New)
        }
    }

    async fn append(&self, head: Head, record: Record) -> Result<(), JournalError> {
        let breaks = self.breaks();
        if breaks != Some(false) {
            self.keep(head, record)?;
        }
        if breaks.is_some() {
            Err(JournalError::Closed)
        } else {
            Ok(())
        }
    }

    async fn records(&self, run: &str) -> Result<Vec<Record>, JournalError> {
        Ok(self
            .kept
            .lock()
            .unwrap()
            .records
            .get(run)
            .cloned()
            .unwrap_or_default())
    }

    async fn heads(&self) -> Result<Vec<Head>, JournalError> {
        Ok(self.kept.lock().unwrap().heads.values().cloned().collect())
    }

    async fn audit_seen(&self) -> Result<u64, JournalError> {
        Ok(self.kept.lock().unwrap().audit)
    }

    async fn note_audit(&self, sequence: u64) -> Result<(), JournalError> {
        self.kept.lock().unwrap().audit = sequence;
        Ok(())
    }
}

/// What a client shows in the end: no numbers, no times.
pub(super) fn view(entries: &[Entry]) -> Vec<What> {
    shown(entries).into_iter().map(|entry| entry.what).collect()
}

/// Records as a later version finds them.
pub(super) fn records(world: &World, run: &str) -> Vec<Record> {
    world.journal.kept.lock().unwrap().records[run].clone()
}

/// Whether a record is of this kind of event.
pub(super) fn is_tool_result(record: &Record) -> bool {
    matches!(record.event, Event::ToolFinished { .. })
}
