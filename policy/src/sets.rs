//! The named lists of a policy: hosts and addresses, or paths, never both.
use crate::Problem;
use crate::diagnostic::Position;
use crate::document::{Document, SetPart};
use crate::host::shown;
use crate::path_pattern::{PathPattern, Slashes};
use std::collections::HashMap;

/// Most hosts and paths of one policy after sets are put in their places.
const EXPANDED_LIMIT: usize = 200_000;

/// What a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Hosts,
    Paths,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Paths => "paths",
        }
    }

    /// A path begins with `/`, and no host does.
    fn of(entry: &str) -> Self {
        match entry.starts_with('/') {
            true => Self::Paths,
            false => Self::Hosts,
        }
    }
}

/// The sets of a policy, by name.
pub(crate) struct Sets<'a> {
    /// Also as `preset:NAME` for the set `NAME` of that preset.
    by_name: HashMap<String, &'a SetPart>,
    expanded: usize,
}

impl<'a> Sets<'a> {
    pub(crate) fn new(documents: &'a [Document], problems: &mut Vec<Problem>) -> Self {
        let mut sets = Self {
            by_name: HashMap::new(),
            expanded: 0,
        };
        for document in documents {
            for set in &document.sets {
                sets.add(document, set, problems);
            }
        }
        for set in documents.iter().flat_map(|document| &document.sets) {
            sets.check(set, problems);
        }
        sets
    }

    fn add(&mut self, document: &Document, set: &'a SetPart, problems: &mut Vec<Problem>) {
        let name = &set.name;
        if let Some(first) = self.by_name.get(&name.value) {
            let message = format!(
                "set `{}` is defined twice; first at {}",
                shown(&name.value),
                first.name.at
            );
            problems.push(name.at.error(message).code(crate::Code::DefinedTwice));
            return;
        }
        if name.value.contains(['.', '*', '/', ':', ' ']) {
            let problem = name
                .at
                .error(format!("`{}` is not a name for a set", shown(&name.value)));
            problems.push(problem.hint("use letters, digits and `-`, so that no host looks like it"));
        }
        if document.file.strip_prefix("preset:") == Some(&name.value) {
            self.by_name.insert(document.file.to_string(), set);
        }
        self.by_name.insert(name.value.clone(), set);
    }

    /// One kind of entries, no sets among them, and paths that can be read.
    fn check(&self, set: &SetPart, problems: &mut Vec<Problem>) {
        let kind = kind(set);
        for entry in &set.entries {
            if self.by_name.contains_key(&entry.value) {
                let message = format!("`{}` is a set; sets do not nest", entry.value);
                problems.push(entry.at.error(message));
            } else if Kind::of(&entry.value) != kind {
                let message = format!(
                    "`{}` does not belong in set `{}`, which holds {}",
                    shown(&entry.value),
                    set.name.value,
                    kind.as_str()
                );
                problems.push(
                    entry
                        .at
                        .error(message)
                        .hint("put hosts and paths into sets of their own"),
                );
            } else if kind == Kind::Paths
                && let Err((why, hint)) = PathPattern::parse(&entry.value, Slashes::Encoded)
            {
                let mut problem = entry.at.error(why);
                problem.hint = hint;
                problems.push(problem);
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a SetPart> {
        self.by_name.get(name).copied()
    }

    /// The names of the sets of one kind.
    pub(crate) fn names(&self, wanted: Kind) -> impl Iterator<Item = &str> {
        self.by_name
            .iter()
            .filter(move |(_, set)| kind(set) == wanted)
            .map(|(name, _)| name.as_str())
    }

    /// Whether this set may stand here: it holds what is wanted, and the policy stays small enough.
    pub(crate) fn admit(
        &mut self,
        set: &SetPart,
        wanted: Kind,
        at: &Position,
        problems: &mut Vec<Problem>,
    ) -> bool {
        let held = kind(set);
        if held != wanted {
            let message = format!(
                "set `{}` holds {}, not {}",
                set.name.value,
                held.as_str(),
                wanted.as_str()
            );
            problems.push(at.error(message));
            return false;
        }
        self.expanded += set.entries.len();
        let fits = self.expanded <= EXPANDED_LIMIT;
        if !fits {
            let message = format!("the rules name more than {EXPANDED_LIMIT} hosts and paths in all");
            problems.push(at.error(message));
        }
        fits
    }
}

/// By its first entry.
pub(crate) fn kind(set: &SetPart) -> Kind {
    set.entries
        .first()
        .map_or(Kind::Hosts, |entry| Kind::of(&entry.value))
}
