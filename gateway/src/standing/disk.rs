//! The folder of policies: read as a whole, watched by its metadata, written file by file.
use super::owner;
use super::place::{file_of, is_inside, key_of, problem};
use super::store::digest;
use crate::control::types::PolicyKey;
use sallyport_policy::{PolicyText, Problem, included_names};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest file, in bytes.
const FILE: u64 = 4 << 20;
/// Most files of one policy.
const FILES: usize = 64;
/// Most files in the folder.
const ALL: usize = 20_000;
/// Folders within folders.
const DEPTH: usize = 8;
/// A file that changed less than this ago may change again within the file system's tick, unseen.
const TICK: Duration = Duration::from_secs(2);
/// What [`Found::digest`] is where there is no file.
pub(super) const GONE: &str = "gone";

/// The folder.
#[derive(Debug)]
pub(super) struct Disk(PathBuf);

/// One policy as it lies there.
#[derive(Debug)]
pub(super) struct Found {
    /// Or why it cannot be read.
    pub(super) texts: Result<Vec<PolicyText>, Problem>,
    /// Another one whenever something else lies there.
    pub(super) digest: String,
    /// Account that owns its file.
    pub(super) author: String,
}

/// All that lies there.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) found: BTreeMap<PolicyKey, Found>,
    /// Files that no policy uses.
    pub(super) strays: Vec<String>,
}

/// Metadata by name; the same as before where nothing changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Glance {
    files: Vec<(String, u64, u64, i64, i64)>,
}

impl Glance {
    /// Whether a change would show in the metadata from now on.
    pub(super) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let old = now.saturating_sub(TICK).as_secs();
        let newest = self.files.iter().map(|(.., changed, _)| *changed).max();
        newest.is_none_or(|newest| u64::try_from(newest).is_ok_and(|newest| newest < old))
    }
}

impl Disk {
    /// Makes the folder where it is not there.
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        make_folder(&folder)?;
        Ok(Self(folder))
    }

    /// Metadata of every file.
    pub(super) fn glance(&self) -> io::Result<Glance> {
        let mut files = Vec::new();
        for name in self.names()? {
            // One that went away meanwhile is seen the next time.
            if let Ok(facts) = std::fs::metadata(self.0.join(&name)) {
                files.push((name, facts.ino(), facts.len(), facts.ctime(), facts.ctime_nsec()));
            }
        }
        Ok(Glance { files })
    }

    /// Reads every policy.
    pub(super) fn read(&self) -> io::Result<Reading> {
        let names = self.names()?;
        let mut reading = Reading::default();
        let mut used = BTreeSet::new();
        for (name, key) in names.iter().filter_map(|name| Some((name, key_of(name)?))) {
            let texts = self.with_included(name, &mut used);
            let author = std::fs::metadata(self.0.join(name))
                .map_or_else(|_| "unknown".to_owned(), |facts| owner::name(facts.uid()));
            let digest = digest_of(&texts);
            reading.found.insert(
                key,
                Found {
                    texts,
                    digest,
                    author,
                },
            );
        }
        reading.strays = names.into_iter().filter(|name| !used.contains(name)).collect();
        Ok(reading)
    }

    /// What [`Found::digest`] of one policy is, or [`GONE`].
    pub(super) fn digest(&self, key: &PolicyKey) -> String {
        let name = file_of(key);
        if !self.0.join(&name).exists() {
            return GONE.to_owned();
        }
        digest_of(&self.with_included(&name, &mut BTreeSet::new()))
    }

    /// Writes a policy's files, each whole; a file that is the same already is left alone.
    pub(super) fn write(&self, texts: &[PolicyText]) -> io::Result<()> {
        // The policy itself last: until then nothing refers to the others.
        for text in texts.iter().rev() {
            let path = self.0.join(&text.name);
            if std::fs::read(&path).is_ok_and(|there| there == text.text.as_bytes()) {
                continue;
            }
            let folder = path.parent().unwrap_or(&self.0);
            make_folder(folder)?;
            let beside = path.with_extension(format!("{}.new", std::process::id()));
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(text.text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes a policy's own file.
    pub(super) fn remove(&self, key: &PolicyKey) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(file_of(key))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A policy's file and what it includes, each once. One that is missing is left out: compiling names it, with its place.
    fn with_included(&self, name: &str, used: &mut BTreeSet<String>) -> Result<Vec<PolicyText>, Problem> {
        let mut texts = vec![self.text(name)?];
        let mut seen = BTreeSet::from([name.to_owned()]);
        let mut next = 0;
        while let Some(text) = texts.get(next) {
            next += 1;
            for included in included_names(text) {
                if included.starts_with("preset:") || !seen.insert(included.clone()) {
                    continue;
                }
                if !is_inside(&included) {
                    let hint = "a standing policy includes only what lies in the folder of policies";
                    let message = format!("`{}` lies outside", included.escape_debug());
                    return Err(problem(name, &message, Some(hint)));
                }
                if self.0.join(&included).exists() && texts.len() < FILES {
                    texts.push(self.text(&included)?);
                }
            }
        }
        used.extend(seen);
        Ok(texts)
    }

    fn text(&self, name: &str) -> Result<PolicyText, Problem> {
        let text = self.content(name).map_err(|why| problem(name, &why, None))?;
        Ok(PolicyText {
            name: name.to_owned(),
            text,
        })
    }

    /// A file's text; links may lead to other files of the folder, not out of it.
    fn content(&self, name: &str) -> Result<String, String> {
        let system = |error: io::Error| format!("it cannot be read: {error}");
        let folder = self.0.canonicalize().map_err(system)?;
        let path = folder.join(name).canonicalize().map_err(system)?;
        if !path.starts_with(&folder) {
            return Err("it is a link that leads out of the folder of policies".to_owned());
        }
        // Without waiting: a named pipe would hold up everything.
        let waiting = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(waiting.bits()).unwrap_or_default())
            .open(&path)
            .map_err(system)?;
        if !file.metadata().map_err(system)?.is_file() {
            return Err("it is no file".to_owned());
        }
        let mut bytes = Vec::new();
        file.take(FILE + 1).read_to_end(&mut bytes).map_err(system)?;
        if bytes.len() as u64 > FILE {
            return Err(format!("it has more than {FILE} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
    }

    /// Names of all files, relative to the folder, in order. Hidden ones are left out: editors and mounts keep their own.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        collect(&self.0, "", DEPTH, &mut names)?;
        names.sort();
        Ok(names)
    }
}

fn digest_of(texts: &Result<Vec<PolicyText>, Problem>) -> String {
    match texts {
        Ok(texts) => digest(texts),
        Err(problem) => format!("unreadable: {problem}"),
    }
}

fn collect(folder: &Path, inside: &str, depth: usize, names: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if name.starts_with('.') || name.ends_with(".new") {
            continue;
        }
        let name = format!("{inside}{name}");
        if entry.file_type()?.is_dir() {
            if depth > 0 {
                collect(&entry.path(), &format!("{name}/"), depth - 1, names)?;
            }
        } else if names.len() < ALL {
            names.push(name);
        } else {
            return Err(io::Error::other(format!("there are more than {ALL} files")));
        }
    }
    Ok(())
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
