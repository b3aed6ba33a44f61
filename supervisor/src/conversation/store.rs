//! Where conversations are kept: numbers are never used twice, attempts are fenced, final text replaces pieces.
use crate::conversation::feed::{CLOSED, ENTRIES, FEEDS, GOING, OUTPUTS, Open, entry, read_feed};
use crate::conversation::{Entry, What};
use crate::store::{Need, Store, StoreError};
use redb::{ReadableTable, TableDefinition};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// Entries read in one transaction.
const PAGE: usize = 256;

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
        let written = self.store.write(move |transaction| {
            let mut feed = match Open::new(transaction, &owned, epoch)? {
                Ok(feed) => feed,
                Err(what) => return Ok((Need::Lazy, Err(what))),
            };
            let value = job(&mut feed)?;
            let (need, last) = feed.close()?;
            Ok((need, Ok((last, value))))
        });
        let damaged = |what| StoreError::Damaged {
            path: self.store.path().to_owned(),
            what,
        };
        let (last, value) = written.await?.map_err(damaged)?;
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
