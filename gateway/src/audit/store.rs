//! The writer of the audit log, and how its file is opened.
use super::{AuditError, chain};
use crate::control::types::AuditRecord;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, error::TryRecvError};
use tokio::sync::{Notify, oneshot, watch};

const VERSION: u32 = 1;
/// Records in one commit at most.
const GROUP: usize = 2048;
/// How long a commit waits for more records where nobody waits for it: each costs a sync, and a page of every index.
const LINGER: Duration = Duration::from_millis(50);
/// Records kept in memory while the disk is full.
const BACKLOG: usize = 8192;
/// Between two tries to write to a full disk.
const RETRY: Duration = Duration::from_millis(500);

const SCHEMA: &str = "
CREATE TABLE records (
  sequence INTEGER PRIMARY KEY,
  exchange TEXT NOT NULL,
  session TEXT NOT NULL,
  host TEXT NOT NULL,
  verdict TEXT NOT NULL,
  body TEXT NOT NULL,
  chain TEXT NOT NULL
) STRICT;
CREATE INDEX by_exchange ON records (exchange, sequence);
CREATE INDEX by_session ON records (session, sequence);
CREATE INDEX by_host ON records (host, sequence);
CREATE INDEX by_verdict ON records (verdict, sequence);
CREATE TABLE probe (id INTEGER PRIMARY KEY, tries INTEGER NOT NULL) STRICT;
INSERT INTO probe VALUES (1, 0);
PRAGMA user_version = 1;
";

/// Something for the writer to do.
pub(super) enum Job {
    Record {
        record: Box<AuditRecord>,
        done: Option<oneshot::Sender<Result<u64, AuditError>>>,
    },
    Flush(oneshot::Sender<Result<(), AuditError>>),
    #[cfg(test)]
    Pragma(String, oneshot::Sender<()>),
}

/// A connection that reads only.
pub(super) fn reader(path: &Path) -> Result<Connection, AuditError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| named(path, &error))?;
    connection
        .busy_timeout(Duration::from_secs(5))
        .map_err(|error| named(path, &error))?;
    Ok(connection)
}

/// What a record is found by: session, host with its labels reversed, verdict.
pub(super) fn indexed(record: &AuditRecord) -> [String; 4] {
    [
        record.id.clone(),
        record.session.clone(),
        reversed(&record.host),
        verdict_name(record.verdict),
    ]
}

/// `api.example.com` as `com.example.api.`, so that the names under one name stand together.
pub(super) fn reversed(host: &str) -> String {
    host.rsplit('.')
        .fold(String::with_capacity(host.len() + 1), |text, label| {
            text + label + "."
        })
}

/// A verdict as it stands in JSON.
pub(super) fn verdict_name(verdict: crate::control::types::Verdict) -> String {
    match serde_json::to_value(verdict) {
        Ok(serde_json::Value::String(name)) => name,
        // A verdict is a plain name in JSON; nothing else can come.
        _ => String::new(),
    }
}

fn named(path: &Path, error: &rusqlite::Error) -> AuditError {
    AuditError(format!("`{}`: {error}", path.display()))
}

/// The one writer.
pub(super) struct Writer {
    connection: Connection,
    sequence: u64,
    chain: String,
    healthy: Arc<AtomicBool>,
    hurry: Arc<Notify>,
    timer: Runtime,
    head: watch::Sender<u64>,
    backlog: Vec<Job>,
}

impl Writer {
    /// Opens or makes the file and finds the end of the chain. `hurry` is told when a record must not linger.
    pub(super) fn open(
        path: &Path,
        healthy: Arc<AtomicBool>,
        hurry: Arc<Notify>,
    ) -> Result<(Self, watch::Receiver<u64>), AuditError> {
        let fail = |error: rusqlite::Error| named(path, &error);
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| AuditError(format!("`{}`: {error}", path.display())))?;
        let mut connection = Connection::open(path).map_err(fail)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(fail)?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(fail)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(fail)?;
        let version: u32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(fail)?;
        match version {
            0 => {
                let make = connection.transaction().map_err(fail)?;
                make.execute_batch(SCHEMA).map_err(fail)?;
                make.commit().map_err(fail)?;
            }
            VERSION => {}
            other => {
                let text = format!(
                    "`{}` has format {other}, and this gateway writes {VERSION}",
                    path.display()
                );
                return Err(AuditError(text));
            }
        }
        let last = connection
            .query_row(
                "SELECT sequence, chain FROM records ORDER BY sequence DESC LIMIT 1",
                [],
                |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)),
            )
            .optional()
            .map_err(fail)?;
        let (sequence, chain) = last.unwrap_or_else(|| (0, chain::GENESIS.to_owned()));
        let (head, newest) = watch::channel(sequence);
        let timer = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| AuditError(format!("its clock does not start: {error}")))?;
        Ok((
            Self {
                connection,
                sequence,
                chain,
                healthy,
                hurry,
                timer,
                head,
                backlog: Vec::new(),
            },
            newest,
        ))
    }

    /// Writes until every handle is gone.
    pub(super) fn run(mut self, mut queue: Receiver<Job>) {
        loop {
            if self.backlog.is_empty() {
                let Some(job) = queue.blocking_recv() else { return };
                self.backlog.push(job);
                self.linger();
            }
            let open = self.take(&mut queue);
            if let Err(error) = self.commit() {
                self.fail(&error);
                if !open && self.backlog.is_empty() {
                    return;
                }
                if !open {
                    tracing::error!(records = self.backlog.len(), %error, "audit records are lost: the disk cannot be written");
                    return;
                }
                std::thread::park_timeout(RETRY);
            }
        }
    }

    /// Waits for more, so that one commit serves many.
    fn linger(&self) {
        // Either way it is time to write.
        let _in_a_hurry = self
            .timer
            .block_on(async { tokio::time::timeout(LINGER, self.hurry.notified()).await });
    }

    /// Takes what waits, as far as there is room; false when no more can come.
    fn take(&mut self, queue: &mut Receiver<Job>) -> bool {
        let room = if self.healthy.load(Ordering::Acquire) {
            GROUP
        } else {
            BACKLOG
        };
        while self.backlog.len() < room {
            match queue.try_recv() {
                Ok(job) => self.backlog.push(job),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    /// Writes the backlog in one transaction, then answers.
    fn commit(&mut self) -> Result<(), rusqlite::Error> {
        let (mut sequence, mut chain) = (self.sequence, self.chain.clone());
        let recovering = !self.healthy.load(Ordering::Acquire);
        let transaction = self.connection.transaction()?;
        if recovering {
            transaction.execute("UPDATE probe SET tries = tries + 1", [])?;
        }
        for job in &mut self.backlog {
            let Job::Record { record, .. } = job else { continue };
            sequence += 1;
            record.sequence = sequence;
            record.chain = String::new();
            let body = serde_json::to_string(record)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
            chain = chain::link(&chain, &body);
            let [exchange, session, host, verdict] = indexed(record);
            transaction
                .prepare_cached("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)")?
                .execute(params![
                    sequence.cast_signed(),
                    exchange,
                    session,
                    host,
                    verdict,
                    body,
                    chain
                ])?;
        }
        transaction.commit()?;
        (self.sequence, self.chain) = (sequence, chain);
        self.healthy.store(true, Ordering::Release);
        self.head.send_replace(sequence);
        if recovering {
            tracing::info!("the audit log can be written again");
        }
        self.answer();
        Ok(())
    }

    /// Tells those who wait. One that has gone away meanwhile is no fault.
    fn answer(&mut self) {
        for job in self.backlog.drain(..) {
            match job {
                Job::Record {
                    record,
                    done: Some(done),
                } => drop(done.send(Ok(record.sequence))),
                Job::Record { done: None, .. } => {}
                Job::Flush(done) => drop(done.send(Ok(()))),
                #[cfg(test)]
                Job::Pragma(text, done) => {
                    self.connection.execute_batch(&text).unwrap();
                    let _ = done.send(());
                }
            }
        }
    }

    /// Nothing could be written: those who wait are told, what was only noted is kept.
    fn fail(&mut self, error: &rusqlite::Error) {
        if self.healthy.swap(false, Ordering::AcqRel) {
            tracing::error!(%error, "the audit log cannot be written; new connections are refused until it can");
        }
        let why = AuditError(format!("{error}; free some space, it goes on by itself"));
        let mut kept = Vec::new();
        for job in self.backlog.drain(..) {
            match job {
                Job::Record { done: Some(done), .. } => drop(done.send(Err(why.clone()))),
                Job::Flush(done) => drop(done.send(Err(why.clone()))),
                #[cfg(test)]
                Job::Pragma(text, done) => {
                    self.connection.execute_batch(&text).unwrap();
                    let _ = done.send(());
                }
                noted => kept.push(noted),
            }
        }
        self.backlog = kept;
    }
}
