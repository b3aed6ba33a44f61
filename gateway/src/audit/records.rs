//! The stored records of a time, as they are: for programs that decide recorded traffic again.
use super::{AuditError, store};
use rusqlite::{Connection, params};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// Rows that one statement reads: a longer one would keep the log from being tidied while it runs.
const PAGE: u32 = 4096;
/// Clocks that were set back, and records that waited for the disk, put the log out of order by no more than this.
const DISORDER: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// Which records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Decided at this time or later.
    pub since: jiff::Timestamp,
    /// Decided before this time.
    pub until: Option<jiff::Timestamp>,
    /// Of this session (run) alone.
    pub run: Option<String>,
}

/// Why the records could not be told.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The log's.
    #[error(transparent)]
    Log(#[from] AuditError),
    /// The reader's; one that went away wanted no more.
    #[error("the records cannot be written out: {0}")]
    Out(#[from] std::io::Error),
}

impl From<rusqlite::Error> for RecordsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Log(AuditError(error.to_string()))
    }
}

/// Writes the records of a log, one JSON document a line, in the log's order; no gateway needs to run. Of an exchange with two
/// records the end alone; before a session's first record the newest one of before `since` that tells whose it is. What makes no
/// sense as a record is written all the same, so that nobody takes it for missing.
pub fn write(folder: &Path, range: &Range, out: &mut dyn Write) -> Result<(), RecordsError> {
    let connection = store::reader(&folder.join("audit.sqlite"))?;
    let start = first_sequence(&connection, range.since)?;
    let mut printer = Printer {
        connection: &connection,
        range,
        met: HashSet::new(),
        out,
    };
    let mut after = start - 1;
    loop {
        let page = page(&connection, range.run.as_deref(), after)?;
        let Some((last, _)) = page.last() else {
            return Ok(printer.out.flush()?);
        };
        after = *last;
        for (sequence, body) in page {
            printer.record(sequence, &body)?;
        }
    }
}

type Row = (i64, String);

fn page(connection: &Connection, run: Option<&str>, after: i64) -> Result<Vec<Row>, rusqlite::Error> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    match run {
        Some(run) => connection
            .prepare_cached(
                "SELECT sequence, body FROM records WHERE session = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            )?
            .query_map(params![run, after, PAGE], read)?
            .collect(),
        None => connection
            .prepare_cached("SELECT sequence, body FROM records WHERE sequence > ? ORDER BY sequence LIMIT ?")?
            .query_map(params![after, PAGE], read)?
            .collect(),
    }
}

/// What of a record decides whether it is told.
#[derive(Deserialize)]
struct Glance<'a> {
    at: jiff::Timestamp,
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(default)]
    duration_ms: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    ending: Cow<'a, str>,
}

struct Printer<'a> {
    connection: &'a Connection,
    range: &'a Range,
    met: HashSet<String>,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn record(&mut self, sequence: i64, body: &str) -> Result<(), RecordsError> {
        let Ok(glance) = serde_json::from_str::<Glance<'_>>(body) else {
            return self.line(&body.replace(['\n', '\r'], " "));
        };
        let early = glance.at < self.range.since;
        if early || self.range.until.is_some_and(|until| glance.at >= until) {
            return Ok(());
        }
        if glance.ending == super::OPEN && self.goes_on(&glance.id, sequence)? {
            return Ok(());
        }
        if !self.met.contains(&*glance.session) {
            self.met.insert(glance.session.to_string());
            if let Some(facts) = self.facts(&glance.session, sequence)? {
                self.line(&facts)?;
            }
        }
        self.line(body)
    }

    fn line(&mut self, text: &str) -> Result<(), RecordsError> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.write_all(b"\n")?)
    }

    fn goes_on(&self, exchange: &str, sequence: i64) -> Result<bool, rusqlite::Error> {
        self.connection
            .prepare_cached("SELECT 1 FROM records WHERE exchange = ? AND sequence > ?")?
            .exists(params![exchange, sequence])
    }

    /// The newest record of before the range that tells whose a session is. Such records have no host.
    fn facts(&self, session: &str, before: i64) -> Result<Option<String>, rusqlite::Error> {
        let mut statement = self.connection.prepare_cached(
            "SELECT body FROM records INDEXED BY by_session \
             WHERE session = ? AND sequence < ? AND host = '.' ORDER BY sequence DESC",
        )?;
        let mut rows = statement.query(params![session, before])?;
        while let Some(row) = rows.next()? {
            let body: String = row.get(0)?;
            let fits = serde_json::from_str::<Glance<'_>>(&body)
                .is_ok_and(|glance| glance.kind == "session" && glance.at < self.range.since);
            if fits {
                return Ok(Some(body));
            }
        }
        Ok(None)
    }
}

/// A sequence before which nothing was decided since then. Records are numbered in the order in which they were written, and
/// each was written about when its exchange had ended, so that the place is found by halving.
fn first_sequence(connection: &Connection, since: jiff::Timestamp) -> Result<i64, rusqlite::Error> {
    let bound = since.checked_sub(DISORDER).unwrap_or(jiff::Timestamp::MIN);
    let newest: Option<i64> =
        connection.query_row("SELECT max(sequence) FROM records", [], |row| row.get(0))?;
    let (mut low, mut high) = (1, newest.unwrap_or(0) + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match written_from(connection, middle, high)? {
            Some((sequence, at)) if at < bound => low = sequence + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The first record from here on that can be read, and when it was written.
fn written_from(
    connection: &Connection,
    from: i64,
    to: i64,
) -> Result<Option<(i64, jiff::Timestamp)>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT sequence, body FROM records WHERE sequence >= ? AND sequence < ? ORDER BY sequence",
    )?;
    let mut rows = statement.query(params![from, to])?;
    while let Some(row) = rows.next()? {
        let body: String = row.get(1)?;
        if let Ok(glance) = serde_json::from_str::<Glance<'_>>(&body) {
            let lasted = jiff::SignedDuration::from_millis(i64::try_from(glance.duration_ms).unwrap_or(0));
            let written = glance.at.checked_add(lasted).unwrap_or(glance.at);
            return Ok(Some((row.get(0)?, written)));
        }
    }
    Ok(None)
}
