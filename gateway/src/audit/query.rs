//! Searching the audit log.
use super::AuditError;
use super::store::{reversed, verdict_name};
use crate::control::types::{AuditQuery, AuditRecord};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

const USUAL: u32 = 100;
const MOST: u32 = 1000;

/// Records that fit, newest first. Where an exchange has ended, its end stands for it: the record of its beginning is left out.
pub(super) fn search(connection: &Connection, query: &AuditQuery) -> Result<Vec<AuditRecord>, AuditError> {
    const NOT_ENDED_SINCE: &str = "NOT EXISTS (SELECT 1 FROM records AS later \
         WHERE later.exchange = records.exchange AND later.sequence > records.sequence)";
    let mut conditions = vec![NOT_ENDED_SINCE];
    let mut values = Vec::new();
    if let Some(session) = &query.session {
        conditions.push("session = ?");
        values.push(Value::from(session.clone()));
    }
    if let Some(host) = &query.host {
        // All that begin with the reversed name: up to the character after the dot.
        conditions.push("host >= ? AND host < ?");
        let from = reversed(&host.trim_matches('.').to_ascii_lowercase());
        let mut to = from.clone();
        to.pop();
        to.push('/');
        values.extend([Value::from(from), Value::from(to)]);
    }
    if let Some(verdict) = query.verdict {
        conditions.push("verdict = ?");
        values.push(Value::from(verdict_name(verdict)));
    }
    if let Some(before) = query.before {
        conditions.push("sequence < ?");
        values.push(Value::from(i64::try_from(before).unwrap_or(i64::MAX)));
    }
    values.push(Value::from(i64::from(query.limit.unwrap_or(USUAL).min(MOST))));
    let text = format!(
        "SELECT body, chain FROM records WHERE {} ORDER BY sequence DESC LIMIT ?",
        conditions.join(" AND ")
    );
    read(connection, &text, params_from_iter(values))
}

/// Records after a sequence, oldest first.
pub(super) fn after(connection: &Connection, after: u64, limit: u32) -> Result<Vec<AuditRecord>, AuditError> {
    let text = "SELECT body, chain FROM records WHERE sequence > ? ORDER BY sequence LIMIT ?";
    read(
        connection,
        text,
        params![i64::try_from(after).unwrap_or(i64::MAX), limit],
    )
}

fn read(
    connection: &Connection,
    text: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<AuditRecord>, AuditError> {
    let fail = |error: rusqlite::Error| AuditError(error.to_string());
    let mut statement = connection.prepare_cached(text).map_err(fail)?;
    let rows = statement
        .query_map(values, |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })
        .map_err(fail)?;
    rows.map(|row| {
        let (body, chain) = row.map_err(fail)?;
        let record = serde_json::from_str::<AuditRecord>(&body)
            .map_err(|error| AuditError(format!("a record makes no sense, run `log verify`: {error}")))?;
        Ok(AuditRecord { chain, ..record })
    })
    .collect()
}
