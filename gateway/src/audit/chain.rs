//! The chain: each record's hash covers the record and the hash before it, so that nothing can be changed, removed or
//! put between without every later hash being wrong.
//!
//! `chain = hex(SHA-256(chain before ‖ "\n" ‖ record))`, where the record is its JSON text as stored, with its sequence
//! and an empty `chain`; before the first record stand 64 zeros. The chain alone does not show that records were cut off
//! at the end: note the head (sequence and hash) elsewhere to prove that.
use crate::control::types::AuditRecord;
use rusqlite::Connection;
use sha2::{Digest, Sha256};

/// What stands before the first record.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The hash of a record that follows another.
pub fn link(before: &str, record: &str) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digest = Sha256::new()
        .chain_update(before)
        .chain_update("\n")
        .chain_update(record)
        .finalize();
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    digest
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

/// A log that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many records.
    pub records: u64,
    /// Hash of the newest.
    pub head: String,
}

/// What is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It was altered.
    #[error("the audit log was altered at record {sequence}: {what}")]
    Altered {
        /// First record that does not fit.
        sequence: u64,
        /// How it does not.
        what: String,
    },
}

/// Reads the whole log and checks numbers, hashes, and that what is searched by is what is recorded.
pub(super) fn verify(connection: &Connection) -> Result<Verified, VerifyError> {
    let unreadable =
        |error: rusqlite::Error| VerifyError::Unreadable(format!("the audit log cannot be read: {error}"));
    let mut statement = connection
        .prepare(
            "SELECT sequence, exchange, session, host, verdict, body, chain FROM records ORDER BY sequence",
        )
        .map_err(unreadable)?;
    let mut rows = statement.query([]).map_err(unreadable)?;
    let mut verified = Verified {
        records: 0,
        head: GENESIS.to_owned(),
    };
    while let Some(row) = rows.next().map_err(unreadable)? {
        let row = Row::read(row).map_err(unreadable)?;
        let expected = verified.records + 1;
        row.check(expected, &verified.head)
            .map_err(|what| VerifyError::Altered {
                sequence: expected,
                what,
            })?;
        verified = Verified {
            records: expected,
            head: row.chain,
        };
    }
    Ok(verified)
}

struct Row {
    sequence: u64,
    indexed: [String; 4],
    body: String,
    chain: String,
}

impl Row {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            sequence: row.get::<_, i64>(0)?.cast_unsigned(),
            indexed: [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?],
            body: row.get(5)?,
            chain: row.get(6)?,
        })
    }

    fn check(&self, expected: u64, before: &str) -> Result<(), String> {
        if self.sequence != expected {
            return Err(format!(
                "records {expected} to {} are missing",
                self.sequence.saturating_sub(1)
            ));
        }
        if link(before, &self.body) != self.chain {
            return Err("its hash does not fit its content".to_owned());
        }
        let record: AuditRecord =
            serde_json::from_str(&self.body).map_err(|error| format!("it is no record: {error}"))?;
        if record.sequence != expected {
            return Err("its content has another number".to_owned());
        }
        if super::store::indexed(&record) != self.indexed {
            return Err("it would be found under other facts than it holds".to_owned());
        }
        Ok(())
    }
}
