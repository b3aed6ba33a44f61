//! What a push changes, read from the beginning of its stream (gitprotocol-pack, "Reference Update Request"). Pure.
//!
//! [`PushReader`] is fed with the bytes as they come, in pieces of any size, before anything of them is sent on. It knows the
//! answer when the commands are read and, where one of them moves a ref, when the pack has shown its commits.
use super::object::{Hash, ObjectId};
use super::pack::Commits;
use super::pkt_line::{self, Line, NoLine};
use sallyport_policy::RefUpdate;
use std::collections::BTreeSet;

/// Bounds of what is read of a push before it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Refs that one push may change. Beyond it: [`PushFault::Refs`].
    pub refs: usize,
    /// Bytes read. Beyond it commands are a [`PushFault::Bytes`], and a pack shows no more.
    pub bytes: usize,
}

/// Why it cannot be told what a push changes. The client's fault; a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushFault {
    /// No pkt-line.
    #[error("the push is malformed: {0}")]
    Line(#[from] NoLine),
    /// A line that is no command.
    #[error("the push is malformed: `{0}` is no command of a push")]
    Command(String),
    /// A signed push.
    #[error("signed pushes are not read here: push without `--signed`")]
    Signed,
    /// More refs than are read.
    #[error("the push changes more than {0} refs: push them in several steps")]
    Refs(usize),
    /// Commands that do not end.
    #[error("the commands of the push are longer than {0} bytes: push fewer refs at once")]
    Bytes(usize),
    /// What carries it cannot be read.
    #[error("the push cannot be read: {0}")]
    Unreadable(String),
    /// It ended too early.
    #[error("the push ended before its commands did")]
    Torn,
}

/// How one ref is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It is taken away.
    Deleted,
    /// It moves to what descends from it.
    Forward,
    /// It moves, and nothing in the push shows that it moves forward.
    Unshown,
}

/// A push as far as a decision and its report need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// Full names of refs, and how each is changed, in the order of the commands.
    pub changes: Vec<(String, Change)>,
    /// What the client asks of the answer (gitprotocol-capabilities): `report-status`, `side-band-64k`, `agent=...`
    pub capabilities: BTreeSet<String>,
}

impl Push {
    /// The refs in a policy's words.
    pub fn updates(&self) -> Vec<RefUpdate> {
        let changes = self.changes.iter();
        changes
            .map(|(name, change)| RefUpdate {
                name: name.clone(),
                forced: matches!(change, Change::Deleted | Change::Unshown),
            })
            .collect()
    }

    /// What to tell beside a refusal: why a push that may be none counts as forced.
    pub fn hint(&self) -> Option<String> {
        let mut unshown = self
            .changes
            .iter()
            .filter(|(_, change)| *change == Change::Unshown);
        let (name, _) = unshown.next()?;
        Some(format!(
            "nothing in the push shows that what `{name}` moves to descends from what it is, so it counts as forced; a push \
             that brings the new commits with it shows it"
        ))
    }

    /// Whether the client asked for something.
    pub fn asks(&self, capability: &str) -> bool {
        self.capabilities.contains(capability)
    }
}

/// What is known after some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Not enough.
    NeedMore,
    /// Everything that will be known.
    Known(Push),
}

/// Reads the beginning of a push.
pub struct PushReader {
    bounds: Bounds,
    /// Bytes fed so far.
    read: usize,
    input: Vec<u8>,
    stage: Stage,
    commands: Vec<Command>,
    capabilities: BTreeSet<String>,
    /// The pack is not looked into.
    commands_only: bool,
}

struct Command {
    old: ObjectId,
    new: ObjectId,
    name: String,
}

enum Stage {
    Commands,
    /// Lines that a hook at the server reads.
    Options,
    Pack(Box<Commits>),
}

impl PushReader {
    /// Reads no more than `bounds` say.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            read: 0,
            input: Vec::new(),
            stage: Stage::Commands,
            commands: Vec::new(),
            capabilities: BTreeSet::new(),
            commands_only: false,
        }
    }

    /// Reads the commands and no more: whatever moves counts as not shown to move forward.
    pub fn of_commands(bounds: Bounds) -> Self {
        Self {
            commands_only: true,
            ..Self::new(bounds)
        }
    }

    /// Reads the next bytes of the stream. Not to be called after an answer.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Reading, PushFault> {
        self.read += bytes.len();
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        let open = loop {
            if let Stage::Pack(commits) = &mut self.stage {
                commits.feed(&self.input[at..]);
                at = self.input.len();
                break commits.is_open();
            }
            let Some((line, taken)) = pkt_line::read(&self.input[at..])? else {
                break true;
            };
            match (line, &self.stage) {
                (Line::Data(line), Stage::Commands) => {
                    let line = line.to_vec();
                    self.line(&line)?;
                }
                (Line::Flush, Stage::Commands) if self.commands_only || !self.moves() => {
                    return Ok(self.known());
                }
                (Line::Flush, Stage::Commands) if self.capabilities.contains("push-options") => {
                    self.stage = Stage::Options;
                }
                (Line::Flush, _) => self.stage = Stage::Pack(Box::new(Commits::new(self.hash()))),
                (Line::Data(_), _) => {}
            }
            at += taken;
        };
        self.input.drain(..at);
        match (open, self.read > self.bounds.bytes) {
            (true, false) => Ok(Reading::NeedMore),
            (true, true) => self.end().map(Reading::Known),
            (false, _) => Ok(self.known()),
        }
    }

    /// No more will be fed: what is known must do.
    pub fn end(&mut self) -> Result<Push, PushFault> {
        match self.stage {
            Stage::Commands if self.read > self.bounds.bytes => Err(PushFault::Bytes(self.bounds.bytes)),
            Stage::Commands => Err(PushFault::Torn),
            Stage::Options | Stage::Pack(_) => Ok(self.push()),
        }
    }

    fn known(&mut self) -> Reading {
        Reading::Known(self.push())
    }

    fn push(&mut self) -> Push {
        let commands = std::mem::take(&mut self.commands);
        let changes: Vec<_> = commands
            .into_iter()
            .map(|command| (command.name.clone(), self.change(&command)))
            .collect();
        Push {
            changes,
            capabilities: std::mem::take(&mut self.capabilities),
        }
    }

    fn change(&mut self, command: &Command) -> Change {
        if command.new.is_zero() {
            return Change::Deleted;
        }
        if command.old.is_zero() {
            return Change::Created;
        }
        let shown = match &mut self.stage {
            Stage::Pack(commits) => commits.descends(command.new, command.old),
            Stage::Commands | Stage::Options => false,
        };
        if shown { Change::Forward } else { Change::Unshown }
    }

    /// Whether a ref moves, so that the pack must show where to.
    fn moves(&self) -> bool {
        let mut commands = self.commands.iter();
        commands.any(|command| !command.old.is_zero() && !command.new.is_zero())
    }

    fn hash(&self) -> Hash {
        self.commands
            .first()
            .map_or(Hash::Sha1, |command| command.new.hash())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), PushFault> {
        let wrong = || PushFault::Command(line.escape_ascii().take(100).map(char::from).collect());
        let (command, capabilities) = match line.iter().position(|byte| *byte == 0) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line.strip_suffix(b"\n").unwrap_or(line), &[][..]),
        };
        let capabilities = std::str::from_utf8(capabilities).map_err(|_| wrong())?;
        let words = capabilities.split_ascii_whitespace().map(str::to_owned);
        self.capabilities.extend(words);
        if command == b"push-cert" {
            return Err(PushFault::Signed);
        }
        if let Some(commit) = command.strip_prefix(b"shallow ") {
            return ObjectId::parse(commit).map(|_| ()).ok_or_else(wrong);
        }
        if self.commands.len() == self.bounds.refs {
            return Err(PushFault::Refs(self.bounds.refs));
        }
        let command = read_command(command).ok_or_else(wrong)?;
        if command.new.hash()
            != self
                .commands
                .first()
                .map_or(command.new.hash(), |first| first.new.hash())
        {
            return Err(wrong());
        }
        self.commands.push(command);
        Ok(())
    }
}

/// `OLD NEW REF`. A name with blanks, controls or bytes that are no text could be read in more than one way.
fn read_command(line: &[u8]) -> Option<Command> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let old = ObjectId::parse(words.next()?)?;
    let new = ObjectId::parse(words.next()?)?;
    let name = std::str::from_utf8(words.next()?).ok()?;
    let clear = !name.is_empty()
        && !name
            .chars()
            .any(|letter| letter.is_whitespace() || letter.is_control());
    (clear && old.hash() == new.hash()).then(|| Command {
        old,
        new,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests;
