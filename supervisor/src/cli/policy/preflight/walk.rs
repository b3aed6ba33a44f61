//! Walking a repository for the files that say what it needs, within bounds and without leaving it.
use crate::cli::Failure;
use sallyport_policy::preflight::{FILE_LIMIT, RepositoryFile, is_interesting};
use std::collections::BTreeMap;
use std::fs::{DirEntry, File};
use std::io::Read as _;
use std::path::Path;

/// Folders whose content is made from what the repository says, or is not part of it.
const SKIPPED: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "bower_components",
    "target",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".terraform",
    ".gradle",
];
/// Go's vendored modules: one file of the folder tells that they are there.
const VENDOR: &str = "vendor";
const VENDORED: &str = "modules.txt";
/// Bounds of one walk.
const DEPTH: usize = 16;
const ENTRIES: usize = 200_000;
const FILES: usize = 5_000;
const BYTES: u64 = 128 * 1024 * 1024;

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) files: Vec<RepositoryFile>,
    /// What was left out, a sentence each.
    pub(super) notes: Vec<String>,
}

/// Reads the interesting files under a folder, in the order of their names. Links are not followed.
pub(super) fn walk(root: &Path) -> Result<Walked, Failure> {
    if !root.is_dir() {
        let hint = "name the folder of a local clone";
        return Err(Failure::new(format!("`{}` is no folder; {hint}", root.display())));
    }
    let mut walk = Walk {
        walked: Walked::default(),
        left_out: BTreeMap::new(),
        entries: 0,
        bytes: 0,
    };
    walk.folder(root, "", 0);
    Ok(walk.finish())
}

struct Walk {
    walked: Walked,
    /// How many of each kind were left out.
    left_out: BTreeMap<String, usize>,
    entries: usize,
    bytes: u64,
}

impl Walk {
    fn leave(&mut self, what: impl Into<String>) {
        *self.left_out.entry(what.into()).or_default() += 1;
    }

    fn folder(&mut self, folder: &Path, inside: &str, depth: usize) {
        let listed = std::fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(error) => {
                let folder = if inside.is_empty() { "." } else { inside };
                self.walked
                    .notes
                    .push(format!("{folder} could not be read: {error}"));
                return;
            }
        };
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            self.entries += 1;
            if self.entries > ENTRIES {
                self.leave(format!("entries after the first {ENTRIES}"));
                return;
            }
            let Ok(name) = entry.file_name().into_string() else {
                self.leave("entries whose names are not UTF-8");
                continue;
            };
            self.entry(&entry, &name, &format!("{inside}{name}"), depth);
        }
    }

    fn entry(&mut self, entry: &DirEntry, name: &str, inside: &str, depth: usize) {
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => {
                self.walked
                    .notes
                    .push(format!("{inside} could not be read: {error}"));
                return;
            }
        };
        if kind.is_symlink() {
            self.leave("links");
        } else if kind.is_dir() && name == VENDOR {
            self.leave("`vendor` folders");
            let modules = entry.path().join(VENDORED);
            if modules.symlink_metadata().is_ok_and(|found| found.is_file()) {
                self.file(&modules, &format!("{inside}/{VENDORED}"));
            }
        } else if kind.is_dir() && SKIPPED.contains(&name) {
            self.leave(format!("`{name}` folders"));
        } else if kind.is_dir() && depth >= DEPTH {
            self.leave(format!("folders deeper than {DEPTH}"));
        } else if kind.is_dir() {
            self.folder(&entry.path(), &format!("{inside}/"), depth + 1);
        } else if kind.is_file() && is_interesting(inside) {
            self.file(&entry.path(), inside);
        }
    }

    fn file(&mut self, path: &Path, inside: &str) {
        if self.walked.files.len() >= FILES || self.bytes >= BYTES {
            self.leave("files after the bounds of one walk were reached");
            return;
        }
        match read(path) {
            Ok(text) => {
                self.bytes += text.len() as u64;
                let path = inside.to_owned();
                self.walked.files.push(RepositoryFile { path, text });
            }
            Err(why) => self
                .walked
                .notes
                .push(format!("{inside} could not be read: {why}")),
        }
    }

    fn finish(mut self) -> Walked {
        for (what, count) in self.left_out {
            self.walked.notes.push(format!("left out: {count} {what}"));
        }
        self.walked
    }
}

fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() > FILE_LIMIT {
        return Err(format!("it has more than {FILE_LIMIT} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}
