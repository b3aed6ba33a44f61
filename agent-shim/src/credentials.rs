//! What the agent may know of its credentials, asked of the serving shim and shown to people.
mod binding;
mod check;
mod files;
pub mod helpers;
mod shapes;

pub use files::{Homes, install};

use crate::command;
use crate::local::{Ask, Reply};
use crate::wire::KnownCredential;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long the serving shim may take; it asks the supervisor first.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const HEADS: [&str; 5] = ["NAME", "VARIABLE", "HOSTS", "STATE", "FOR"];

/// All credentials, and whether that is what the supervisor says now rather than what it said last.
///
/// # Errors
/// The shim cannot be reached or does not answer.
pub fn ask(socket: &Path) -> io::Result<(Vec<KnownCredential>, bool)> {
    match command::ask(socket, &Ask::Credentials, ANSWER_WITHIN)? {
        Some(Reply::Credentials { known, fresh }) => Ok((known, fresh)),
        Some(Reply::Error { text }) => Err(io::Error::other(text)),
        _ => Err(io::Error::other("the shim does not answer")),
    }
}

/// A table for people; control characters in it are blanks.
pub fn table(known: &[KnownCredential]) -> String {
    if known.is_empty() {
        return "no credential is bound to this run\n".to_owned();
    }
    let rows: Vec<[String; 5]> = std::iter::once(HEADS.map(str::to_owned))
        .chain(known.iter().map(row))
        .collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(one: &KnownCredential) -> [String; 5] {
    [
        one.name.clone(),
        one.env.as_ref().map_or("-".to_owned(), |env| format!("${env}")),
        one.hosts.join(","),
        state(one),
        one.purpose.clone().unwrap_or_else(|| "-".to_owned()),
    ]
    .map(|cell| cell.replace(char::is_control, " "))
}

/// Whether it may be used, or how it may be had.
fn state(one: &KnownCredential) -> String {
    match (&one.lender, one.lent_at.is_empty()) {
        (None, _) => "usable".to_owned(),
        (Some(_), false) => format!("lent at {}", one.lent_at.join(",")),
        (Some(by), true) if by == "policy" => "ask for it".to_owned(),
        (Some(_), true) => "a person lends it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> KnownCredential {
        KnownCredential {
            name: name.into(),
            env: Some("TOKEN".into()),
            placeholder: "ghp_placeholder".into(),
            hosts: vec!["git.example".into(), "*.git.example".into()],
            purpose: Some("clones\u{1b}[2J".into()),
            ..KnownCredential::default()
        }
    }

    #[test]
    fn the_table_says_where_a_credential_is_and_what_it_is_for_but_shows_no_placeholder() {
        let text = table(&[known("forge")]);
        let row = text.lines().nth(1).unwrap();
        for part in ["forge", "$TOKEN", "git.example,*.git.example", "usable", "clones"] {
            assert!(row.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("ghp_") && !text.contains('\u{1b}'), "{text:?}");
        assert!(table(&[]).contains("no credential"));
    }

    #[test]
    fn a_credential_that_must_be_asked_for_says_how_it_is_had() {
        let lent = |by: &str, at: &[&str]| KnownCredential {
            lender: Some(by.into()),
            lent_at: at.iter().map(|host| (*host).to_owned()).collect(),
            ..known("deploy")
        };
        assert!(table(&[lent("policy", &[])]).contains("ask for it"));
        assert!(table(&[lent("person", &[])]).contains("a person lends it"));
        assert!(table(&[lent("person", &["git.example"])]).contains("lent at git.example"));
    }
}
