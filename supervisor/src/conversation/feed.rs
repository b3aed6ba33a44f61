//! One run's conversation inside a transaction: its numbers, its attempts, and what final text replaces.
use crate::conversation::{Entry, What};
use crate::store::{Need, seal};
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};

pub(super) const ENTRIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("entries");
pub(super) const FEEDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("feeds");
/// Of each call: number of its first piece of output, and how many bytes of output were taken.
pub(super) const OUTPUTS: TableDefinition<'_, (&str, &str), (u64, u64)> = TableDefinition::new("outputs");
/// Conversations that have not ended.
pub(super) const GOING: TableDefinition<'_, &str, ()> = TableDefinition::new("going");

/// Numbers set aside on disk at once, so that pieces shown before they are durable are never shown again as something else.
const RESERVE: u64 = 256;
/// Marks a call whose result is there.
pub(super) const CLOSED: u64 = u64::MAX;

/// Where one run's conversation stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Feed {
    /// Opening of the file in which this was written.
    pub(super) epoch: u64,
    /// Last number used.
    pub(super) last: u64,
    /// Last number set aside on disk.
    pub(super) reserved: u64,
    /// Last entry of the journal that was applied: record, command.
    pub(super) mark: (u64, u32),
    /// Step and attempt that may write pieces now, and the first number of that attempt.
    pub(super) attempt: (u32, u32),
    pub(super) first: u64,
    /// Whether `Ended` is there.
    pub(super) ended: bool,
}

/// One feed inside a write transaction.
pub(super) struct Open<'a> {
    pub(super) transaction: &'a WriteTransaction,
    pub(super) run: &'a str,
    pub(super) row: Feed,
    pub(super) need: Need,
}

impl<'a> Open<'a> {
    /// The inner error is a row that is damaged: nothing is written then, and other runs' writes are not touched by it.
    pub(super) fn new(
        transaction: &'a WriteTransaction,
        run: &'a str,
        epoch: u64,
    ) -> Result<Result<Self, String>, redb::Error> {
        let bytes = transaction
            .open_table(FEEDS)?
            .get(run)?
            .map(|bytes| bytes.value().to_vec());
        let mut row = match feed(run, bytes.as_deref()) {
            Ok(row) => row,
            Err(what) => return Ok(Err(what)),
        };
        if bytes.is_none() {
            transaction.open_table(GOING)?.insert(run, ())?;
        }
        if row.epoch != epoch {
            // Numbers up to `reserved` may have been shown by the process before.
            row.last = row.last.max(row.reserved);
            row.epoch = epoch;
        }
        Ok(Ok(Self {
            transaction,
            run,
            row,
            need: Need::Lazy,
        }))
    }

    pub(super) fn put(&mut self, mut entry: Entry) -> Result<(), redb::Error> {
        self.row.last += 1;
        entry.sequence = self.row.last;
        let bytes = seal::seal(self.run, entry.sequence, &entry).map_err(redb::Error::Corrupted)?;
        self.transaction
            .open_table(ENTRIES)?
            .insert((self.run, entry.sequence), bytes.as_slice())?;
        Ok(())
    }

    /// Final text replaces its pieces.
    pub(super) fn compact(&mut self, entry: &Entry) -> Result<(), redb::Error> {
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

    pub(super) fn remove(&mut self, from: u64, goes: impl Fn(&Entry) -> bool) -> Result<(), redb::Error> {
        let mut table = self.transaction.open_table(ENTRIES)?;
        let mut gone = Vec::new();
        for row in table.range((self.run, from)..=(self.run, u64::MAX))? {
            let (key, bytes) = row?;
            // A damaged one is left where it is, and told of when it is read.
            let Ok(old) = entry(self.run, key.value().1, bytes.value()) else {
                continue;
            };
            if goes(&old) {
                gone.push(old.sequence);
            }
        }
        for sequence in gone {
            table.remove((self.run, sequence))?;
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> Result<(Need, u64), redb::Error> {
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

pub(super) fn entry(run: &str, sequence: u64, bytes: &[u8]) -> Result<Entry, String> {
    seal::unseal(run, sequence, bytes).map_err(|what| format!("entry {sequence} of run `{run}`: {what}"))
}

fn feed(run: &str, bytes: Option<&[u8]>) -> Result<Feed, String> {
    let Some(bytes) = bytes else {
        return Ok(Feed::default());
    };
    seal::unseal(run, 0, bytes).map_err(|what| format!("the conversation of run `{run}`: {what}"))
}

pub(super) fn read_feed(transaction: &ReadTransaction, run: &str) -> Result<Feed, redb::Error> {
    let table = match transaction.open_table(FEEDS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Feed::default()),
        table => table?,
    };
    let bytes = table.get(run)?.map(|bytes| bytes.value().to_vec());
    feed(run, bytes.as_deref()).map_err(redb::Error::Corrupted)
}
