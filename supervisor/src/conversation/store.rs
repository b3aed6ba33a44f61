//! Where conversations are kept: numbers are never used twice, attempts are fenced, final text replaces pieces.
use crate::conversation::{Entry, What};
use crate::store::{Need, Store, StoreError, seal};
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

const ENTRIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("entries");
const FEEDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("feeds");
/// Of each call: number of its first piece of output, and how many bytes of output were taken.
const OUTPUTS: TableDefinition<'_, (&str, &str), (u64, u64)> = TableDefinition::new("outputs");
/// Conversations that have not ended.
const GOING: TableDefinition<'_, &str, ()> = TableDefinition::new("going");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// Numbers set aside on disk at once, so that pieces shown before they are durable are never shown again as something else.
const RESERVE: u64 = 256;
/// Entries read in one transaction.
const PAGE: usize = 256;
/// Marks a call whose result is there.
const CLOSED: u64 = u64::MAX;

/// Where one run's conversation stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Feed {
    /// Opening of the file in which this was written.
    epoch: u64,
    /// Last number used.
    last: u64,
    /// Last number set aside on disk.
    reserved: u64,
    /// Last entry of the journal that was applied: record, command.
    mark: (u64, u32),
    /// Step and attempt that may write pieces now, and the first number of that attempt.
    attempt: (u32, u32),
    first: u64,
    /// Whether `Ended` is there.
    ended: bool,
}

/// The right to write pieces of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Run.
    pub run: String,
    /// Step.
    pub step: u32,
    /// Attempt, from 1.
    pub attempt: u32,
}

/// A piece of a running tool's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Step of the call.
    pub step: u32,
    /// Attempt of the answer that made the call.
    pub attempt: u32,
    /// Call.
    pub call: String,
    /// Bytes of output up to and with this piece.
    pub taken: u64,
    /// Text.
    pub text: String,
}

/// All conversations of one supervisor; a cheap handle.
#[derive(Debug, Clone)]
pub struct Conversations {
    store: Store,
    epoch: u64,
    listeners: Arc<Mutex<HashMap<String, watch::Sender<u64>>>>,
}

impl Conversations {
    /// Opens the file, or makes it.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Store::open(path)?;
        let epoch = store.write(|transaction| {
            let mut numbers = transaction.open_table(NUMBERS)?;
            let epoch = numbers.get("epoch")?.map_or(0, |number| number.value()) + 1;
            numbers.insert("epoch", epoch)?;
            transaction.open_table(ENTRIES)?;
            transaction.open_table(FEEDS)?;
            transaction.open_table(OUTPUTS)?;
            transaction.open_table(GOING)?;
            Ok((Need::Durable, epoch))
        });
        let epoch = epoch.await?;
        Ok(Self {
            store,
            epoch,
            listeners: Arc::default(),
        })
    }

    /// Begins an attempt at a step. Attempts before it at this step can write nothing more, and what they wrote is void.
    pub async fn begin_attempt(&self, run: &str, step: u32, why: &str) -> Result<Attempt, StoreError> {
        let (why, now) = (why.to_owned(), jiff::Timestamp::now());
        let attempt = self.change(run, move |feed| {
            let dead = feed.row.attempt;
            let attempt = if dead.0 == step { dead.1 + 1 } else { 1 };
            feed.row.attempt = (step, attempt);
            if attempt > 1 {
                let from = feed.row.first;
                feed.remove(from, |entry| entry.step == step && entry.attempt < attempt)?;
                feed.put(Entry {
                    sequence: 0,
                    at: now,
                    step,
                    attempt,
                    what: What::Rewind { from, why },
                })?;
            }
            feed.row.first = feed.row.last + 1;
            feed.need = Need::Durable;
            Ok(attempt)
        });
        Ok(Attempt {
            run: run.into(),
            step,
            attempt: attempt.await?,
        })
    }

    /// A piece of the model's text. False when the attempt is dead.
    pub async fn delta(&self, attempt: &Attempt, text: String) -> Result<bool, StoreError> {
        let now = jiff::Timestamp::now();
        let (step, number) = (attempt.step, attempt.attempt);
        self.change(&attempt.run, move |feed| {
            let alive = feed.row.attempt == (step, number) && !feed.row.ended;
            if alive {
                feed.put(Entry {
                    sequence: 0,
                    at: now,
                    step,
                    attempt: number,
                    what: What::Delta { text },
                })?;
            }
            Ok(alive)
        })
        .await
    }

    /// How many bytes of a call's output were taken; none when its result is there.
    pub async fn taken(&self, run: &str, call: &str) -> Result<Option<u64>, StoreError> {
        let (run, call) = (run.to_owned(), call.to_owned());
        let read = self.store.read(move |transaction| {
            let outputs = transaction.open_table(OUTPUTS)?;
            Ok(outputs
                .get((run.as_str(), call.as_str()))?
                .map_or(0, |row| row.value().1))
        });
        Ok(Some(read.await?).filter(|taken| *taken != CLOSED))
    }

    /// A piece of a tool's output. False when the call's result is there, or these bytes are.
    pub async fn output(&self, run: &str, piece: Piece) -> Result<bool, StoreError> {
        let now = jiff::Timestamp::now();
        self.change(run, move |feed| {
            let key = (feed.run, piece.call.as_str());
            let known = feed
                .transaction
                .open_table(OUTPUTS)?
                .get(key)?
                .map(|row| row.value());
            let (first, taken) = known.unwrap_or((feed.row.last + 1, 0));
            if taken >= piece.taken || feed.row.ended {
                return Ok(false);
            }
            feed.transaction
                .open_table(OUTPUTS)?
                .insert(key, (first, piece.taken))?;
            let (step, attempt) = (piece.step, piece.attempt);
            let what = What::Output {
                call: piece.call,
                text: piece.text,
            };
            feed.put(Entry {
                sequence: 0,
                at: now,
                step,
                attempt,
                what,
            })?;
            feed.need = Need::Durable;
            Ok(true)
        })
        .await
    }

    /// A final entry, made by command `mark.1` of journal record `mark.0`. Said once, however often this is called.
    pub async fn say(&self, run: &str, mark: (u64, u32), entry: Entry) -> Result<(), StoreError> {
        self.change(run, move |feed| {
            if feed.row.mark >= mark {
                return Ok(());
            }
            feed.row.mark = mark;
            feed.need = Need::Durable;
            feed.compact(&entry)?;
            if matches!(entry.what, What::Ended { .. }) {
                feed.row.ended = true;
                feed.transaction.open_table(GOING)?.remove(feed.run)?;
            }
            feed.put(entry)
        })
        .await
    }

    /// Up to where the journal was applied.
    pub async fn mark(&self, run: &str) -> Result<(u64, u32), StoreError> {
        let run = run.to_owned();
        self.store
            .read(move |transaction| Ok(read_feed(transaction, &run)?.mark))
            .await
    }

    /// Runs whose conversation has not ended.
    pub async fn going(&self) -> Result<BTreeSet<String>, StoreError> {
        let read = self.store.read(|transaction| {
            let rows = transaction.open_table(GOING)?;
            rows.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect()
        });
        read.await
    }

    /// Entries after a number, at most a page of them; and whether nothing will follow these.
    pub(super) async fn page(store: &Store, run: &str, after: u64) -> Result<(Vec<Entry>, bool), StoreError> {
        let path = store.path().to_owned();
        let run = run.to_owned();
        let read = store.read(move |transaction| {
            let ended = read_feed(transaction, &run)?.ended;
            let table = transaction.open_table(ENTRIES)?;
            let mut entries = Vec::new();
            for row in table
                .range((run.as_str(), after.saturating_add(1))..=(run.as_str(), u64::MAX))?
                .take(PAGE)
            {
                let (key, bytes) = row?;
                entries.push(entry(&run, key.value().1, bytes.value()));
            }
            let last = entries.len() < PAGE;
            Ok((entries.into_iter().collect::<Result<Vec<_>, _>>(), ended && last))
        });
        let (entries, ended) = read.await?;
        Ok((entries.map_err(|what| StoreError::Damaged { path, what })?, ended))
    }

    /// The store and the number that grows with each change of a run's conversation.
    pub(super) fn listen(&self, run: &str) -> (Store, watch::Receiver<u64>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = listeners
            .entry(run.to_owned())
            .or_insert_with(|| watch::channel(0).0);
        (self.store.clone(), sender.subscribe())
    }

    async fn change<T: Send + 'static>(
        &self,
        run: &str,
        job: impl FnOnce(&mut Open<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (owned, epoch) = (run.to_owned(), self.epoch);
        let (last, value) = self
            .store
            .write(move |transaction| {
                let mut feed = Open::new(transaction, &owned, epoch)?;
                let value = job(&mut feed)?;
                let (need, last) = feed.close()?;
                Ok((need, (last, value)))
            })
            .await?;
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = listeners.get(run) {
            if sender.receiver_count() == 0 {
                listeners.remove(run);
            } else {
                sender.send_replace(last);
            }
        }
        Ok(value)
    }
}

/// One feed inside a write transaction.
struct Open<'a> {
    transaction: &'a WriteTransaction,
    run: &'a str,
    row: Feed,
    need: Need,
}

impl<'a> Open<'a> {
    fn new(transaction: &'a WriteTransaction, run: &'a str, epoch: u64) -> Result<Self, redb::Error> {
        let bytes = transaction
            .open_table(FEEDS)?
            .get(run)?
            .map(|bytes| bytes.value().to_vec());
        if bytes.is_none() {
            transaction.open_table(GOING)?.insert(run, ())?;
        }
        let mut row = feed(run, bytes.as_deref())?;
        if row.epoch != epoch {
            // Numbers up to `reserved` may have been shown by the process before.
            row.last = row.last.max(row.reserved);
            row.epoch = epoch;
        }
        Ok(Self {
            transaction,
            run,
            row,
            need: Need::Lazy,
        })
    }

    fn put(&mut self, mut entry: Entry) -> Result<(), redb::Error> {
        self.row.last += 1;
        entry.sequence = self.row.last;
        let bytes = seal::seal(self.run, entry.sequence, &entry).map_err(redb::Error::Corrupted)?;
        self.transaction
            .open_table(ENTRIES)?
            .insert((self.run, entry.sequence), bytes.as_slice())?;
        Ok(())
    }

    /// Final text replaces its pieces.
    fn compact(&mut self, entry: &Entry) -> Result<(), redb::Error> {
        match &entry.what {
            What::Said { .. } | What::Call { .. } if self.row.attempt.0 == entry.step => {
                let step = entry.step;
                self.remove(self.row.first, |old| {
                    old.step == step && matches!(old.what, What::Delta { .. })
                })
            }
            What::Result { call, .. } => {
                let key = (self.run, call.as_str());
                let known = self
                    .transaction
                    .open_table(OUTPUTS)?
                    .insert(key, (0, CLOSED))?
                    .map(|row| row.value());
                match known {
                    Some((first, taken)) if taken != CLOSED => self.remove(
                        first,
                        |old| matches!(&old.what, What::Output { call: other, .. } if other == call),
                    ),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn remove(&mut self, from: u64, goes: impl Fn(&Entry) -> bool) -> Result<(), redb::Error> {
        let mut table = self.transaction.open_table(ENTRIES)?;
        let mut gone = Vec::new();
        for row in table.range((self.run, from)..=(self.run, u64::MAX))? {
            let (key, bytes) = row?;
            let old = entry(self.run, key.value().1, bytes.value()).map_err(redb::Error::Corrupted)?;
            if goes(&old) {
                gone.push(old.sequence);
            }
        }
        for sequence in gone {
            table.remove((self.run, sequence))?;
        }
        Ok(())
    }

    fn close(mut self) -> Result<(Need, u64), redb::Error> {
        if self.row.last > self.row.reserved {
            self.row.reserved = self.row.last + RESERVE;
            self.need = Need::Durable;
        }
        let bytes = seal::seal(self.run, 0, &self.row).map_err(redb::Error::Corrupted)?;
        self.transaction
            .open_table(FEEDS)?
            .insert(self.run, bytes.as_slice())?;
        Ok((self.need, self.row.last))
    }
}

fn entry(run: &str, sequence: u64, bytes: &[u8]) -> Result<Entry, String> {
    seal::unseal(run, sequence, bytes).map_err(|what| format!("entry {sequence} of run `{run}`: {what}"))
}

fn feed(run: &str, bytes: Option<&[u8]>) -> Result<Feed, redb::Error> {
    let Some(bytes) = bytes else {
        return Ok(Feed::default());
    };
    seal::unseal(run, 0, bytes)
        .map_err(|what| redb::Error::Corrupted(format!("the conversation of run `{run}`: {what}")))
}

fn read_feed(transaction: &ReadTransaction, run: &str) -> Result<Feed, redb::Error> {
    match transaction.open_table(FEEDS) {
        Err(TableError::TableDoesNotExist(_)) => Ok(Feed::default()),
        table => feed(
            run,
            table?.get(run)?.map(|bytes| bytes.value().to_vec()).as_deref(),
        ),
    }
}
