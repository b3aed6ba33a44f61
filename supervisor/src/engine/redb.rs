//! The journal on redb.
use crate::engine::journal::{Begun, Head, Journal, JournalError, Key, Record};
use crate::store::{Need, Store, StoreError, seal};
use async_trait::async_trait;
use redb::{ReadableTable, TableDefinition, TableError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

const RECORDS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("records");
const HEADS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("heads");
const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const AUDIT: &str = "audit";

/// The journal of one supervisor.
#[derive(Debug, Clone)]
pub struct RedbJournal {
    store: Store,
}

#[derive(Serialize, Deserialize)]
struct KeyRow {
    run: String,
    request: String,
}

impl RedbJournal {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            store: Store::open(path)?,
        })
    }
}

#[async_trait]
impl Journal for RedbJournal {
    async fn begin(&self, key: Option<Key>, head: Head, record: Record) -> Result<Begun, JournalError> {
        let run = head.summary.id.clone();
        let sealed_head = seal(&run, 0, &head)?;
        let sealed = seal(&run, record.sequence, &record)?;
        let row = key.as_ref().map(|key| KeyRow {
            run: run.clone(),
            request: key.request.clone(),
        });
        let row = row.map(|row| seal("key", 0, &row)).transpose()?;
        let known = self
            .store
            .write(move |transaction| {
                if let (Some(key), Some(row)) = (&key, &row) {
                    let mut keys = transaction.open_table(KEYS)?;
                    if let Some(known) = keys.get(key.key.as_str())? {
                        return Ok((Need::Lazy, Some(known.value().to_vec())));
                    }
                    keys.insert(key.key.as_str(), row.as_slice())?;
                }
                transaction
                    .open_table(RECORDS)?
                    .insert((run.as_str(), record.sequence), sealed.as_slice())?;
                transaction
                    .open_table(HEADS)?
                    .insert(run.as_str(), sealed_head.as_slice())?;
                Ok((Need::Durable, None))
            })
            .await
            .map_err(unavailable)?;
        match known {
            None => Ok(Begun::New),
            Some(bytes) => {
                let row: KeyRow = unseal("key", 0, &bytes)?;
                Ok(Begun::Known {
                    run: row.run,
                    request: row.request,
                })
            }
        }
    }

    async fn append(&self, head: Head, record: Record) -> Result<(), JournalError> {
        let run = head.summary.id.clone();
        let sequence = record.sequence;
        let sealed_head = seal(&run, 0, &head)?;
        let sealed = seal(&run, sequence, &record)?;
        let key = run.clone();
        let written = self
            .store
            .write(move |transaction| {
                let mut records = transaction.open_table(RECORDS)?;
                let taken = records
                    .get((key.as_str(), sequence))?
                    .map(|known| known.value().to_vec());
                if let Some(known) = taken {
                    return Ok((Need::Durable, known == sealed));
                }
                records.insert((key.as_str(), sequence), sealed.as_slice())?;
                transaction
                    .open_table(HEADS)?
                    .insert(key.as_str(), sealed_head.as_slice())?;
                Ok((Need::Durable, true))
            })
            .await
            .map_err(unavailable)?;
        if written {
            Ok(())
        } else {
            Err(JournalError::Taken { run, sequence })
        }
    }

    async fn records(&self, run: &str) -> Result<Vec<Record>, JournalError> {
        let key = run.to_owned();
        let rows = self
            .store
            .read(move |transaction| {
                let table = match transaction.open_table(RECORDS) {
                    Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                    other => other?,
                };
                let mut rows = Vec::new();
                for row in table.range((key.as_str(), 0)..=(key.as_str(), u64::MAX))? {
                    let (place, bytes) = row?;
                    rows.push((place.value().1, bytes.value().to_vec()));
                }
                Ok(rows)
            })
            .await
            .map_err(unavailable)?;
        let mut records = Vec::with_capacity(rows.len());
        for (position, (sequence, bytes)) in (1u64..).zip(rows) {
            if sequence != position {
                let what = "a record is missing before it".into();
                return Err(JournalError::Damaged {
                    run: run.into(),
                    sequence,
                    what,
                });
            }
            records.push(unseal(run, sequence, &bytes)?);
        }
        Ok(records)
    }

    async fn heads(&self) -> Result<Vec<Head>, JournalError> {
        let rows = self
            .store
            .read(|transaction| {
                let table = match transaction.open_table(HEADS) {
                    Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                    other => other?,
                };
                let mut rows = Vec::new();
                for row in table.iter()? {
                    let (run, bytes) = row?;
                    rows.push((run.value().to_owned(), bytes.value().to_vec()));
                }
                Ok(rows)
            })
            .await
            .map_err(unavailable)?;
        rows.iter().map(|(run, bytes)| unseal(run, 0, bytes)).collect()
    }

    async fn audit_seen(&self) -> Result<u64, JournalError> {
        let read = self
            .store
            .read(|transaction| match transaction.open_table(NUMBERS) {
                Err(TableError::TableDoesNotExist(_)) => Ok(0),
                table => Ok(table?.get(AUDIT)?.map_or(0, |number| number.value())),
            });
        read.await.map_err(unavailable)
    }

    async fn note_audit(&self, sequence: u64) -> Result<(), JournalError> {
        let write = self.store.write(move |transaction| {
            transaction.open_table(NUMBERS)?.insert(AUDIT, sequence)?;
            Ok((Need::Lazy, ()))
        });
        write.await.map_err(unavailable)
    }
}

fn unavailable(fault: StoreError) -> JournalError {
    match fault {
        StoreError::Closed(_) => JournalError::Closed,
        other => JournalError::Unavailable(other.to_string()),
    }
}

fn seal<T: Serialize>(run: &str, sequence: u64, value: &T) -> Result<Vec<u8>, JournalError> {
    seal::seal(run, sequence, value).map_err(JournalError::Unavailable)
}

fn unseal<T: DeserializeOwned>(run: &str, sequence: u64, sealed: &[u8]) -> Result<T, JournalError> {
    let damaged = |what| JournalError::Damaged {
        run: run.into(),
        sequence,
        what,
    };
    seal::unseal(run, sequence, sealed).map_err(damaged)
}
