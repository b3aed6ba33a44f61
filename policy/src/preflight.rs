//! What a repository will need, read from its manifests, lock files and scripts, compared with a policy before a machine boots.
mod address;
mod cargo;
mod compare;
mod containers;
mod finding;
mod finds;
mod go;
mod java;
mod json_comments;
mod need;
mod npm;
mod others;
mod presets;
mod python;
mod report;
mod repository;
mod secrets;
mod shell;
mod suggest;
#[cfg(test)]
mod testing;
mod tree;

pub use compare::{Against, compare};
pub use finding::{Finding, Outcome};
use finds::{Finds, Found};
pub use need::{Certainty, Need, NeedKind, Needs, Place, RepositoryFile, Scheme, Site};
pub use report::Report;
pub use suggest::Suggestion;

/// Largest file that is looked at, in bytes.
pub const FILE_LIMIT: usize = 16 * 1024 * 1024;

/// A reader of one ecosystem's files: whether it reads a file of that path, and how.
type Reader = (fn(&str) -> bool, fn(&mut Finds<'_>));

const READERS: &[Reader] = &[
    (|path| python::reads(name_of(path)), python::read),
    (|path| npm::reads(name_of(path)), npm::read),
    (cargo::reads, cargo::read),
    (|path| java::reads(name_of(path)), java::read),
    (containers::reads, containers::read),
    (repository::reads, repository::read),
    (|path| others::reads(name_of(path)), others::read),
    (|path| secrets::reads(name_of(path)), secrets::read),
];

/// Whether [`needs`] makes anything of a file with this path (relative to the repository, with `/`).
pub fn is_interesting(path: &str) -> bool {
    go::reads(name_of(path)) || go::is_vendored(path) || READERS.iter().any(|(reads, _)| reads(path))
}

/// Reads files. Total: what cannot be read is noted.
pub fn needs(files: &[RepositoryFile]) -> Needs {
    let mut found = Found::default();
    for file in files {
        let mut finds = Finds::new(&file.path, &file.text, &mut found);
        for (_, read) in READERS.iter().filter(|(reads, _)| reads(&file.path)) {
            match file.text.len() > FILE_LIMIT {
                true => finds.unreadable(&format!("it has more than {FILE_LIMIT} bytes")),
                false => read(&mut finds),
            }
        }
        if go::reads(name_of(&file.path)) {
            go::read(&mut finds, is_vendored(&file.path, files));
        }
    }
    let (needs, notes) = found.finish();
    Needs { needs, notes }
}

/// Whether the module of this `go.mod` has its dependencies beside it.
fn is_vendored(path: &str, files: &[RepositoryFile]) -> bool {
    let folder = path.strip_suffix(name_of(path)).unwrap_or_default();
    files.iter().any(|other| {
        go::is_vendored(&other.path) && other.path.strip_prefix(folder) == Some("vendor/modules.txt")
    })
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
