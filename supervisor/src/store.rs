//! A redb file: created so that a kill never leaves half of one, written by one thread in groups, read briefly.
pub mod seal;

use redb::backends::FileBackend;
use redb::{Builder, Database, Durability, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Jobs in one commit.
const GROUP: usize = 256;
/// Jobs that may wait.
const QUEUE: usize = 4_096;
/// Memory for pages of one file, in bytes.
const CACHE: usize = 32 << 20;

/// Why a file cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened or made.
    #[error("`{path}` cannot be opened: {why}")]
    Open {
        /// File.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It cannot be read or written now (disk full, ...). What was confirmed before is safe.
    #[error("`{path}` cannot be read or written: {why}")]
    Use {
        /// File.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// What was read is not what was written.
    #[error("`{path}` is damaged: {what}; restore it from a backup")]
    Damaged {
        /// File.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The writer has ended, since the process is stopping.
    #[error("`{0}` is closed")]
    Closed(PathBuf),
}

/// Whether a job's commit must be on disk before it is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// On disk first.
    Durable,
    /// On disk with the next durable one; until then a power cut or kill may undo it.
    Lazy,
}

type Job = Box<dyn FnOnce(&WriteTransaction) -> Result<(Need, Confirm), redb::Error> + Send>;
type Confirm = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// An open file; a cheap handle.
#[derive(Clone)]
pub struct Store {
    path: Arc<PathBuf>,
    database: Arc<Database>,
    jobs: mpsc::Sender<Job>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Store({})", self.path.display())
    }
}

impl Store {
    /// Opens the file, or makes it with mode 0600: under a temporary name, renamed when it is whole.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let fail = |why: String| StoreError::Open {
            path: path.into(),
            why,
        };
        if !path.try_exists().map_err(|fault| fail(fault.to_string()))? {
            make(path).map_err(fail)?;
        }
        let shown = path.display().to_string();
        let opened = std::panic::catch_unwind(|| {
            Builder::new()
                .set_cache_size(CACHE)
                .set_repair_callback(move |session| {
                    let progress = session.progress();
                    tracing::info!(file = %shown, progress, "checking a file that was not closed");
                })
                .open(path)
        });
        let database = opened
            .map_err(|_| {
                fail("it is damaged; restore it from a backup, or move it away to begin anew".into())
            })?
            .map_err(|fault| fail(fault.to_string()))?;
        let database = Arc::new(database);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = Writer {
            path: path.into(),
            database: Arc::clone(&database),
        };
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(queue))
            .map_err(|fault| fail(fault.to_string()))?;
        Ok(Self {
            path: Arc::new(path.into()),
            database,
            jobs,
        })
    }

    /// Runs a job in the next commit and waits until that is done. A job checks before it writes: what it has
    /// written stays, whatever value it returns; only a fault of the store undoes the whole group.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&WriteTransaction) -> Result<(Need, T), redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, result) = oneshot::channel();
        let path = Arc::clone(&self.path);
        let job: Job = Box::new(move |transaction| {
            let (need, value) = job(transaction)?;
            let confirm: Confirm = Box::new(move |committed| {
                // Nobody listens when the caller was cancelled; the commit stands all the same.
                let _ = answer.send(committed.map(|()| value));
            });
            Ok((need, confirm))
        });
        self.jobs
            .send(job)
            .await
            .map_err(|_| StoreError::Closed(path.to_path_buf()))?;
        result.await.unwrap_or_else(|_| {
            let why = "a write of the same group failed; nothing of it was kept".into();
            Err(StoreError::Use {
                path: path.to_path_buf(),
                why,
            })
        })
    }

    /// Reads in a short transaction, on a thread that may block.
    pub async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (database, path) = (Arc::clone(&self.database), Arc::clone(&self.path));
        let done = tokio::task::spawn_blocking(move || {
            let transaction = database.begin_read().map_err(redb::Error::from)?;
            job(&transaction)
        });
        let failed = |why: String| StoreError::Use {
            path: path.to_path_buf(),
            why,
        };
        match done.await {
            Ok(result) => result.map_err(|fault| failed(fault.to_string())),
            Err(fault) => Err(failed(fault.to_string())),
        }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a whole, empty file beside its final name and moves it there.
fn make(path: &Path) -> Result<(), String> {
    let text = |fault: io::Error| fault.to_string();
    let folder = path.parent().ok_or("it has no folder")?;
    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(text(fault)),
        _ => {}
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(text)?;
    let backend = FileBackend::new(file).map_err(|fault| fault.to_string())?;
    let database = Builder::new()
        .create_with_backend(backend)
        .map_err(|fault| fault.to_string())?;
    drop(database);
    File::open(&new).and_then(|file| file.sync_all()).map_err(text)?;
    std::fs::rename(&new, path).map_err(text)?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(text)
}

/// Makes a folder that only its owner may enter.
pub fn private_folder(path: &Path) -> Result<(), StoreError> {
    let fail = |fault: io::Error| StoreError::Open {
        path: path.into(),
        why: fault.to_string(),
    };
    std::fs::create_dir_all(path).map_err(fail)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(fail)
}

struct Writer {
    path: PathBuf,
    database: Arc<Database>,
}

impl Writer {
    /// Until every handle is gone.
    fn run(self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP {
                let Ok(job) = queue.try_recv() else { break };
                group.push(job);
            }
            // A file that was altered on disk may make the library panic; other runs' writes go on.
            let commit = AssertUnwindSafe(|| self.commit(group));
            if std::panic::catch_unwind(commit).is_err() {
                tracing::error!(file = %self.path.display(), "a write broke off: the file may be damaged");
            }
        }
    }

    fn commit(&self, group: Vec<Job>) {
        let mut confirms = Vec::with_capacity(group.len());
        let outcome = self.write(group, &mut confirms);
        if let Err(fault) = &outcome {
            tracing::error!(file = %self.path.display(), %fault, "a write failed");
        }
        for confirm in confirms {
            confirm(outcome.clone());
        }
    }

    fn write(&self, group: Vec<Job>, confirms: &mut Vec<Confirm>) -> Result<(), StoreError> {
        let failed = |fault: redb::Error| StoreError::Use {
            path: self.path.clone(),
            why: fault.to_string(),
        };
        let mut transaction = self
            .database
            .begin_write()
            .map_err(|fault| failed(fault.into()))?;
        transaction.set_quick_repair(true);
        let mut need = Need::Lazy;
        for job in group {
            let (wants, confirm) = job(&transaction).map_err(failed)?;
            confirms.push(confirm);
            if wants == Need::Durable {
                need = Need::Durable;
            }
        }
        if need == Need::Lazy {
            transaction.set_quick_repair(false);
            transaction
                .set_durability(Durability::None)
                .map_err(|fault| failed(fault.into()))?;
        }
        transaction.commit().map_err(|fault| failed(fault.into()))
    }
}

#[cfg(test)]
mod tests;
