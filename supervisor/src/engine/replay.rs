//! Rebuilding a run from its journal: the same events must give the same commands.
use crate::engine::journal::{FORMAT, Record, marks};
use crate::run::command::{Command, Mark};
use crate::run::event::Event;
use crate::run::state::State;
use crate::run::{begin, decide, expects};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A command that is made to be carried out, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    /// Number of the record that made it.
    pub record: u64,
    /// Which command of the record, from 0.
    pub index: u32,
    /// When that was journaled.
    pub at: Timestamp,
    /// The command.
    pub command: Command,
}

/// A run as its journal tells it.
#[derive(Debug)]
pub struct Rebuilt {
    /// The state after the last record.
    pub state: State,
    /// Number of the last record.
    pub sequence: u64,
    /// Everything to be said, in order.
    pub sayings: Vec<Due>,
    /// What was begun and has no outcome yet, by key.
    pub live: BTreeMap<String, Due>,
}

/// Why a journal cannot be continued by this version. Nothing is changed; other runs go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another version wrote it.
    #[error(
        "version mismatch: record {sequence} has format {found}, this version writes {FORMAT}; finish the run with the version that began it, or stop it"
    )]
    Format {
        /// Record.
        sequence: u64,
        /// Its format.
        found: u32,
    },
    /// The first command that differs.
    #[error(
        "version mismatch: at record {sequence} command {index} is journaled as {journaled} and this version makes {made}; \
         finish the run with the version that began it, or stop it"
    )]
    Command {
        /// Record.
        sequence: u64,
        /// Which command, from 0.
        index: usize,
        /// As journaled.
        journaled: String,
        /// As made now.
        made: String,
    },
    /// An event that this version would not have journaled here.
    #[error(
        "version mismatch: record {sequence} is an event that means nothing here to this version; finish the run with the version that began it, or stop it"
    )]
    Event {
        /// Record.
        sequence: u64,
    },
    /// There is nothing, or no beginning.
    #[error("the journal of this run has no beginning; restore it from a backup, or stop the run")]
    Empty,
}

/// Replays all records of one run.
pub fn replay(records: &[Record]) -> Result<Rebuilt, Mismatch> {
    let mut rebuilt: Option<Rebuilt> = None;
    for record in records {
        if record.format != FORMAT {
            return Err(Mismatch::Format {
                sequence: record.sequence,
                found: record.format,
            });
        }
        let commands = match (&mut rebuilt, &record.event) {
            (None, Event::Started { run, request }) => {
                let (state, commands) = begin(run, request);
                rebuilt = Some(Rebuilt {
                    state,
                    sequence: 0,
                    sayings: Vec::new(),
                    live: BTreeMap::new(),
                });
                commands
            }
            (Some(rebuilt), event) if expects(&rebuilt.state, event) => decide(&mut rebuilt.state, event),
            (Some(_), _) => {
                return Err(Mismatch::Event {
                    sequence: record.sequence,
                });
            }
            (None, _) => return Err(Mismatch::Empty),
        };
        compare(record, &commands)?;
        if let Some(rebuilt) = &mut rebuilt {
            rebuilt.take(record, commands);
        }
    }
    rebuilt.ok_or(Mismatch::Empty)
}

impl Rebuilt {
    fn take(&mut self, record: &Record, commands: Vec<Command>) {
        self.sequence = record.sequence;
        if let Some(key) = record.event.settles() {
            self.live.remove(&key);
        }
        for (index, command) in (0u32..).zip(commands) {
            let due = Due {
                record: record.sequence,
                index,
                at: record.at,
                command,
            };
            match (&due.command, due.command.key()) {
                (Command::Say { .. }, _) => self.sayings.push(due),
                (Command::Cancel, _) => self.live.clear(),
                (_, Some(key)) => {
                    self.live.insert(key, due);
                }
                _ => {}
            }
        }
    }
}

fn compare(record: &Record, commands: &[Command]) -> Result<(), Mismatch> {
    let made = marks(commands).unwrap_or_default();
    let show = |mark: Option<&Mark>| match mark {
        Some(mark) => format!(
            "`{}` with content {}",
            mark.kind,
            mark.hash.get(..12).unwrap_or(&mark.hash)
        ),
        None => "nothing".into(),
    };
    for index in 0..made.len().max(record.commands.len()) {
        let (journaled, made) = (record.commands.get(index), made.get(index));
        if journaled != made {
            let sequence = record.sequence;
            return Err(Mismatch::Command {
                sequence,
                index,
                journaled: show(journaled),
                made: show(made),
            });
        }
    }
    Ok(())
}
