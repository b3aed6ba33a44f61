//! The audit log: one record for each decision and each finished exchange, on disk before it counts.
//!
//! One SQLite file `audit.sqlite` in the state directory, in WAL mode with every commit synced. One thread writes; whatever
//! has queued up goes into one commit, which waits a moment for more where nobody waits for it. Records are numbered without gaps and chained by hash (see [`chain`]).
use crate::control::types::{AuditQuery, AuditRecord};
use futures_util::Stream;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub mod chain;
mod query;
pub mod records;
mod store;
mod tidy;

use store::{Job, Writer};

/// Ending of an exchange whose answer goes on: its end is a second record.
pub(crate) const OPEN: &str = "open";
/// Ending of what did not pass since its record could not be written.
pub(crate) const HELD_BACK: &str = "held back: the audit log cannot be written";
/// Records that may wait for the writer; more make the callers wait.
const QUEUE: usize = 4096;
/// So many are written without waiting for more.
const ENOUGH: usize = 1024;
/// Records read at once for a subscriber.
const PAGE: u32 = 500;

/// Takes records; a cheap handle on the one writer.
#[derive(Clone)]
pub struct Sink(Arc<Shared>);

struct Shared {
    path: PathBuf,
    jobs: mpsc::Sender<Job>,
    /// Somebody waits, or enough have come.
    hurry: Arc<Notify>,
    healthy: Arc<AtomicBool>,
    head: watch::Receiver<u64>,
    scrub: OnceLock<Scrub>,
}

type Scrub = Box<dyn Fn(&mut AuditRecord) + Send + Sync>;

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("path", &self.0.path)
            .finish_non_exhaustive()
    }
}

/// Why a record could not be written or read; new connections are refused while this lasts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be used: {0}")]
pub struct AuditError(pub String);

impl Sink {
    /// Opens or makes the log in a state directory and starts its writer.
    pub fn open(folder: &Path) -> Result<Self, AuditError> {
        let path = folder.join("audit.sqlite");
        let healthy = Arc::new(AtomicBool::new(true));
        let (jobs, queue) = mpsc::channel(QUEUE);
        let hurry = Arc::new(Notify::new());
        let (writer, head) = Writer::open(&path, healthy.clone(), hurry.clone())?;
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| AuditError(format!("its thread does not start: {error}")))?;
        Ok(Self(Arc::new(Shared {
            path,
            jobs,
            hurry,
            healthy,
            head,
            scrub: OnceLock::new(),
        })))
    }

    /// Has every record pass this function before it is queued. The first call counts.
    pub fn scrub_with(&self, scrub: impl Fn(&mut AuditRecord) + Send + Sync + 'static) {
        // A second scrubber would mean two sets of sessions; the first one stays.
        let _ = self.0.scrub.set(Box::new(scrub));
    }

    /// Writes and waits until the record is durable. `sequence` and `chain` are filled in here.
    pub async fn write(&self, record: AuditRecord) -> Result<u64, AuditError> {
        if !self.healthy() {
            return Err(AuditError("earlier records could not be written yet".to_owned()));
        }
        let (done, answer) = oneshot::channel();
        let job = Job::Record {
            record: Box::new(self.prepared(record)),
            done: Some(done),
        };
        self.0.jobs.send(job).await.map_err(|_| stopped())?;
        self.0.hurry.notify_one();
        answer.await.map_err(|_| stopped())?
    }

    /// Queues; durable at the latest after 1 s. Waits while the queue is full, fails while the disk is
    /// (the record is kept in memory then, as long as there is room, and written when the disk can be).
    pub async fn note(&self, record: AuditRecord) -> Result<(), AuditError> {
        let job = self.noted(record);
        if self.healthy() {
            self.0.jobs.send(job).await.map_err(|_| stopped())?;
            self.hurry_when_many();
            return Ok(());
        }
        match self.0.jobs.try_send(job) {
            Ok(()) => Err(AuditError(
                "the record waits in memory until the disk can be written".to_owned(),
            )),
            Err(_) => Err(AuditError(
                "the record is lost: too many wait for the disk already".to_owned(),
            )),
        }
    }

    /// As [`Sink::note`] where there is room at once; gives the record back where it would have to wait, or cannot be written.
    pub fn offer(&self, record: AuditRecord) -> Option<AuditRecord> {
        match self.0.jobs.try_reserve() {
            Ok(place) if self.healthy() => place.send(self.noted(record)),
            _ => return Some(record),
        }
        self.hurry_when_many();
        None
    }

    /// Whether records can be written now; ask before a connection is accepted.
    pub fn healthy(&self) -> bool {
        self.0.healthy.load(Ordering::Acquire)
    }

    /// Waits until everything queued so far is durable; for a graceful stop.
    pub async fn flush(&self) -> Result<(), AuditError> {
        let (done, answer) = oneshot::channel();
        self.0.jobs.send(Job::Flush(done)).await.map_err(|_| stopped())?;
        self.0.hurry.notify_one();
        answer.await.map_err(|_| stopped())?
    }

    /// Sequence of the newest durable record; 0 for an empty log.
    pub fn head(&self) -> u64 {
        *self.0.head.borrow()
    }

    /// Searches what was noted so far; newest first.
    pub async fn query(&self, query: AuditQuery) -> Result<Vec<AuditRecord>, AuditError> {
        if self.healthy()
            && let Err(error) = self.flush().await
        {
            tracing::debug!(%error, "what waits for the disk is not searched");
        }
        let path = self.0.path.clone();
        off_thread(move || query::search(&store::reader(&path)?, &query)).await
    }

    /// Every record after a sequence, in order, each once: first from disk, then as they come. Never ends by itself.
    pub fn follow(&self, after: u64) -> impl Stream<Item = Result<AuditRecord, AuditError>> + Send + use<> {
        let (path, head) = (self.0.path.clone(), self.0.head.clone());
        let pages =
            futures_util::stream::try_unfold((path, head, after), |(path, mut head, after)| async move {
                if head.wait_for(|newest| *newest > after).await.is_err() {
                    return Ok(None);
                }
                let file = path.clone();
                let page = off_thread(move || query::after(&store::reader(&file)?, after, PAGE)).await?;
                let last = page.last().map_or(after, |record| record.sequence);
                let page = futures_util::stream::iter(page.into_iter().map(Ok));
                Ok::<_, AuditError>(Some((page, (path, head, last))))
            });
        futures_util::TryStreamExt::try_flatten(pages)
    }

    fn noted(&self, record: AuditRecord) -> Job {
        Job::Record {
            record: Box::new(self.prepared(record)),
            done: None,
        }
    }

    fn hurry_when_many(&self) {
        if self.0.jobs.capacity() < QUEUE - ENOUGH {
            self.0.hurry.notify_one();
        }
    }

    fn prepared(&self, mut record: AuditRecord) -> AuditRecord {
        if let Some(scrub) = self.0.scrub.get() {
            scrub(&mut record);
        }
        tidy::tidy(&mut record);
        record
    }

    #[cfg(test)]
    async fn pragma(&self, text: &str) {
        let (done, answer) = oneshot::channel();
        self.0
            .jobs
            .send(Job::Pragma(text.to_owned(), done))
            .await
            .unwrap();
        self.0.hurry.notify_one();
        answer.await.unwrap();
    }
}

/// Checks a whole log in a state directory; no gateway needs to run.
pub fn verify(folder: &Path) -> Result<chain::Verified, chain::VerifyError> {
    let path = folder.join("audit.sqlite");
    let connection =
        store::reader(&path).map_err(|error| chain::VerifyError::Unreadable(error.to_string()))?;
    chain::verify(&connection)
}

fn stopped() -> AuditError {
    AuditError("its writer has stopped".to_owned())
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AuditError> + Send + 'static,
) -> Result<T, AuditError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| AuditError(error.to_string()))?
}

#[cfg(test)]
mod tests;
