//! What hosts runs: journal, one executor a run, timers, and the gateway's events. `kill -9` at any moment is safe.
mod board;
pub mod journal;
pub mod redb;
pub mod replay;
mod service;
mod timers;
mod watch;
mod worker;

#[cfg(test)]
mod tests;

use crate::activity::{Context, Hands, Patience, close, machine};
use crate::conversation::store::Conversations;
use crate::gateway::Door;
use crate::lock::{Lock, LockError};
use crate::machine::Driver;
use crate::model::{ModelConfig, Models};
use crate::store::{StoreError, private_folder};
use board::Board;
use journal::{Head, Journal, JournalError};
use replay::Rebuilt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use watch::{Contexts, Watch};
use worker::{Shop, Worker};

/// Events of one run that may wait.
const QUEUE: usize = 256;

/// What an engine is made from.
pub struct Parts {
    /// Folder for journal and conversations; made with mode 0700.
    pub state_dir: PathBuf,
    /// The gateway's control API.
    pub door: Arc<dyn Door>,
    /// Maker of machines.
    pub driver: Arc<dyn Driver>,
    /// Keys and limits of models.
    pub models: ModelConfig,
}

/// Why an engine cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The state directory belongs to another supervisor.
    #[error("{0}: stop the other supervisor, or choose another state directory")]
    Lock(#[from] LockError),
    /// A file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Models cannot be asked.
    #[error(transparent)]
    Model(#[from] crate::model::types::ModelError),
}

/// Hosts runs; [`crate::runs::Runs`] is what may be done with them.
pub struct Engine {
    shop: Shop,
    hands: Arc<Hands>,
    contexts: Contexts,
    _lock: Option<Lock>,
}

impl Engine {
    /// Opens journal and conversations and goes on with every run that is not over.
    pub async fn open(parts: Parts) -> Result<Arc<Self>, EngineError> {
        private_folder(&parts.state_dir)?;
        let lock = Lock::take(&parts.state_dir.join("supervisor.lock"))?;
        let journal = redb::RedbJournal::open(&parts.state_dir.join("journal.redb"))?;
        let conversations = Conversations::open(&parts.state_dir.join("conversations.redb")).await?;
        let hands = Hands {
            door: parts.door,
            driver: parts.driver,
            models: Models::new(parts.models)?,
            conversations,
            patience: Patience::default(),
            heard: tokio::sync::watch::Sender::new(0),
        };
        Self::assemble(
            Arc::new(journal),
            Arc::new(hands),
            Some(lock),
            CancellationToken::new(),
        )
        .await
    }

    async fn assemble(
        journal: Arc<dyn Journal>,
        hands: Arc<Hands>,
        lock: Option<Lock>,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, EngineError> {
        let shop = Shop {
            journal,
            board: Board::default(),
            closing,
            tasks: TaskTracker::new(),
        };
        let engine = Self {
            shop,
            hands,
            contexts: Contexts::default(),
            _lock: lock,
        };
        engine.recover().await?;
        let (shop, door) = (engine.shop.clone(), Arc::clone(&engine.hands.door));
        let watch = Watch {
            shop,
            door,
            contexts: Arc::clone(&engine.contexts),
            heard: engine.hands.heard.clone(),
        };
        engine.shop.tasks.spawn(watch.run());
        Ok(Arc::new(engine))
    }

    /// Stops: runs stand still where they are, machines go on, and the next engine on this directory continues.
    pub async fn shutdown(&self) {
        self.shop.closing.cancel();
        self.shop.tasks.close();
        self.shop.tasks.wait().await;
    }

    async fn recover(&self) -> Result<(), EngineError> {
        let heads = self.shop.journal.heads().await?;
        self.remove_strays(&heads).await;
        let going = self.hands.conversations.going().await?;
        for head in heads {
            self.shop.board.put(head.clone(), None);
            // One that was killed between its last record and its last words has these still to say.
            if !head.is_over() || going.contains(&head.summary.id) {
                self.resume(head).await;
            }
        }
        Ok(())
    }

    /// Goes on with one run. What cannot be continued is held; the others are not touched by that.
    async fn resume(&self, head: Head) {
        let run = head.summary.id.clone();
        let records = match self.shop.journal.records(&run).await {
            Ok(records) => records,
            Err(_) if head.is_over() => return service::last_words(&self.hands, &head, Vec::new()).await,
            Err(fault) => return self.shop.board.hold(&run, &fault.to_string()),
        };
        match replay::replay(&records) {
            Ok(rebuilt) => self.employ(head, rebuilt),
            Err(_) if head.is_over() => service::last_words(&self.hands, &head, Vec::new()).await,
            Err(mismatch) => self.shop.board.hold(&run, &mismatch.to_string()),
        }
    }

    /// Puts a worker on a run.
    fn employ(&self, head: Head, rebuilt: Rebuilt) {
        let (inbox, brought) = mpsc::channel(QUEUE);
        let (events, outcomes) = mpsc::channel(QUEUE);
        let run = rebuilt.state.run.clone();
        let context = Arc::new(Context {
            run: run.clone(),
            request: rebuilt.state.request.clone(),
            hands: Arc::clone(&self.hands),
            events,
            link: machine::Link::default(),
            closing: self.shop.closing.clone(),
        });
        let head = worker::head_of(&head, &rebuilt.state, rebuilt.sequence);
        self.shop
            .board
            .put(head.clone(), (!head.is_over()).then_some(inbox));
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|_, known| known.strong_count() > 0);
        contexts.insert(run, Arc::downgrade(&context));
        let worker = Worker::new(self.shop.clone(), context, &rebuilt, head, (outcomes, brought));
        self.shop.tasks.spawn(worker.run(rebuilt));
    }

    /// Machines whose run is over, or was never journaled, go. A run that is held keeps its own.
    async fn remove_strays(&self, heads: &[Head]) {
        let machines = match self.hands.driver.list().await {
            Ok(machines) => machines,
            Err(fault) => {
                tracing::warn!(%fault, "machines left behind cannot be looked for");
                return;
            }
        };
        for record in machines {
            let wanted = heads
                .iter()
                .any(|head| !head.is_over() && close::belongs(&head.summary.id, &record));
            if !wanted {
                tracing::info!(machine = %record.id, "removing a machine without a run");
                if let Err(fault) = self.hands.driver.destroy(&record).await {
                    tracing::warn!(machine = %record.id, %fault, "a machine without a run cannot be removed");
                }
            }
        }
    }
}
