//! Where the readers of files put what they find: grouped, without doubles, within bounds.
use super::address::{Address, NoAddress};
use super::need::{Certainty, Need, NeedKind, Place, Site};
use crate::GitAccess;
use crate::host::shown;
use std::collections::{BTreeSet, HashMap};

/// Places that a need names; the others are counted.
const PLACES: usize = 5;
/// Paths that are kept of one host.
const PATHS: usize = 256;
/// Most needs.
const NEEDS: usize = 2_000;
/// Most notes.
const NOTES: usize = 100;

/// All that was found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) needs: Vec<Need>,
    pub(super) notes: Vec<String>,
    index: HashMap<String, usize>,
    dropped: usize,
    unnoted: usize,
}

impl Found {
    fn note(&mut self, note: String) {
        if self.notes.contains(&note) {
            return;
        }
        match self.notes.len() < NOTES {
            true => self.notes.push(note),
            false => self.unnoted += 1,
        }
    }

    /// The needs, and the notes with what fell to the bounds.
    pub(super) fn finish(mut self) -> (Vec<Need>, Vec<String>) {
        if self.dropped > 0 {
            self.notes.push(format!(
                "{} more needs were left out: {NEEDS} are looked at",
                self.dropped
            ));
        }
        if self.unnoted > 0 {
            self.notes
                .push(format!("{} more notes were left out", self.unnoted));
        }
        (self.needs, self.notes)
    }
}

/// Where in a file something stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot<'t> {
    /// Line, from 1.
    Line(u32),
    /// The line of this text's first occurrence.
    Text(&'t str),
}

/// What a reader says of a find.
#[derive(Debug, Clone, Copy)]
pub(super) struct Find<'t> {
    pub(super) what: &'static str,
    pub(super) ecosystem: &'static str,
    pub(super) certainty: Certainty,
    pub(super) spot: Spot<'t>,
}

impl<'t> Find<'t> {
    /// Something that is certainly needed.
    pub(super) fn sure(what: &'static str, ecosystem: &'static str, spot: Spot<'t>) -> Self {
        Self {
            what,
            ecosystem,
            certainty: Certainty::Sure,
            spot,
        }
    }

    /// Something that may be needed.
    pub(super) fn likely(what: &'static str, ecosystem: &'static str, spot: Spot<'t>) -> Self {
        Self {
            certainty: Certainty::Likely,
            ..Self::sure(what, ecosystem, spot)
        }
    }
}

/// The finds of one file.
pub(super) struct Finds<'a> {
    /// Path relative to the repository.
    pub(super) file: &'a str,
    /// Its content.
    pub(super) text: &'a str,
    found: &'a mut Found,
    /// Whether it is a sample of some kind, so that nothing in it is sure.
    sample: bool,
}

impl<'a> Finds<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, found: &'a mut Found) -> Self {
        let samples = ["fixtures", "testdata", "examples", "samples", "__fixtures__"];
        Self {
            file,
            text,
            found,
            sample: file.split('/').any(|part| samples.contains(&part)),
        }
    }

    /// The file's name.
    pub(super) fn name(&self) -> &'a str {
        self.file.rsplit('/').next().unwrap_or(self.file)
    }

    /// The default registries of the find's ecosystem.
    pub(super) fn registries(&mut self, find: Find<'_>) {
        self.add(NeedKind::Registries, None, find);
    }

    /// An address: a git repository where it looks like one, else something that is fetched. What its login names is a need too.
    pub(super) fn address(&mut self, text: &str, find: Find<'_>) {
        self.locate(text, false, find);
    }

    /// An address of a git repository.
    pub(super) fn repository(&mut self, text: &str, find: Find<'_>) {
        self.locate(text, true, find);
    }

    fn locate(&mut self, text: &str, git: bool, find: Find<'_>) {
        match Address::parse(text) {
            Ok(address) if git || address.git => {
                self.login(&address, find);
                let kind = NeedKind::Git {
                    repository: address.repository().to_owned(),
                    site: address.site,
                    access: GitAccess::Read,
                };
                self.add(kind, None, find);
            }
            Ok(address) => {
                self.login(&address, find);
                let kind = NeedKind::Host {
                    site: address.site,
                    method: "GET".to_owned(),
                    paths: BTreeSet::new(),
                };
                self.add(kind, Some(address.path), find);
            }
            Err(NoAddress::Variable) => {
                let place = self.place(find.spot);
                let text = shown(text);
                self.found.note(format!(
                    "{place}: `{text}` has its host from a variable and was not looked at"
                ));
            }
            Err(NoAddress::Local) => {}
        }
    }

    fn login(&mut self, address: &Address, find: Find<'_>) {
        let Some(login) = &address.login else { return };
        let variable = variables(login).into_iter().next_back();
        // A user name alone is no secret.
        if variable.is_some() || login.contains(':') {
            let find = Find {
                what: "a log-in",
                ..find
            };
            self.credential(variable, Some(address.site.clone()), find);
        }
    }

    /// A credential, by the variable that holds it or the place that it is for.
    pub(super) fn credential(&mut self, variable: Option<String>, site: Option<Site>, find: Find<'_>) {
        self.add(NeedKind::Credential { variable, site }, None, find);
    }

    /// Says that the file, or something in it, was not understood.
    pub(super) fn unreadable(&mut self, why: &str) {
        let note = format!("{} could not be read: {}", shown(self.file), shown(why));
        self.found.note(note);
    }

    fn add(&mut self, kind: NeedKind, path: Option<String>, find: Find<'_>) {
        let certainty = match self.sample {
            true => Certainty::Likely,
            false => find.certainty,
        };
        // Of a host's many paths the sure ones and the likely ones are told apart.
        let by_certainty = matches!(kind, NeedKind::Host { .. }).then_some(certainty);
        let key = format!("{kind:?} {} {by_certainty:?}", find.ecosystem);
        let number = match self.found.index.get(&key) {
            Some(number) => *number,
            None if self.found.needs.len() >= NEEDS => {
                self.found.dropped += 1;
                return;
            }
            None => {
                self.found.needs.push(Need {
                    what: find.what.to_owned(),
                    kind,
                    ecosystem: find.ecosystem.to_owned(),
                    certainty,
                    from: Vec::new(),
                    more: 0,
                });
                self.found.index.insert(key, self.found.needs.len() - 1);
                self.found.needs.len() - 1
            }
        };
        let line = |spot| line_of(self.text, spot);
        let Some(need) = self.found.needs.get_mut(number) else {
            return;
        };
        need.certainty = need.certainty.min(certainty);
        if let (NeedKind::Host { paths, .. }, Some(path)) = (&mut need.kind, path)
            && paths.len() < PATHS
        {
            paths.insert(path);
        }
        if need.from.len() >= PLACES {
            need.more += 1;
            return;
        }
        let place = Place {
            file: self.file.to_owned(),
            line: line(find.spot),
        };
        if !need.from.contains(&place) {
            need.from.push(place);
        }
    }

    fn place(&self, spot: Spot<'_>) -> Place {
        Place {
            file: self.file.to_owned(),
            line: line_of(self.text, spot),
        }
    }
}

fn line_of(text: &str, spot: Spot<'_>) -> u32 {
    match spot {
        Spot::Line(line) => line,
        Spot::Text(part) => text.find(part).map_or(1, |at| line_at(text, at)),
    }
}

/// Line of a byte offset, from 1.
pub(super) fn line_at(text: &str, offset: usize) -> u32 {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    let breaks = before.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(breaks).unwrap_or(u32::MAX - 1) + 1
}

/// The lines of a text with their numbers, from 1.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (u32::try_from(number).unwrap_or(u32::MAX - 1) + 1, line))
}

/// Names of variables in a text: `$NAME`, `${NAME}`, `${NAME:-default}`.
pub(super) fn variables(text: &str) -> Vec<String> {
    text.match_indices('$')
        .filter_map(|(at, _)| {
            let rest = text.get(at + 1..)?;
            let rest = rest.strip_prefix('{').unwrap_or(rest);
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            rest.get(..end)
        })
        .filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
        .map(str::to_owned)
        .collect()
}
