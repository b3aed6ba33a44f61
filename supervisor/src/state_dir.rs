//! The state directory: where it is, who may look into it, and who is in charge of it.
use crate::lock::{Lock, LockError, holder};
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Longest path of a unix socket, in bytes (`sun_path` of unix(7), without the final zero).
const SOCKET_PATH_LIMIT: usize = 107;
/// The longest socket below the state directory, to check before anything is started.
const LONGEST_SOCKET: &str = "gateway/handover.4194304.new";

/// Why a state directory cannot be used. Another one, given with `--state DIR`, helps in every case.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Nobody said where.
    #[error("no state directory: $HOME is not set; give one with --state DIR")]
    NoHome,
    /// Sockets in it would have names that the system does not take.
    #[error("the state directory's path `{}` is {over} bytes too long for the sockets in it; give a shorter one with --state DIR", path.display())]
    TooLong {
        /// Directory.
        path: PathBuf,
        /// Bytes too many.
        over: usize,
    },
    /// The file system says no.
    #[error("the state directory `{}` {why}; give one that you can write with --state DIR", path.display())]
    Unusable {
        /// Directory or file.
        path: PathBuf,
        /// What is wrong, in a few words.
        why: String,
    },
    /// Another supervisor has it.
    #[error("{by} holds `{}` already; use that supervisor, or give another directory with --state DIR", path.display())]
    Taken {
        /// Directory.
        path: PathBuf,
        /// The other, as it wrote itself down.
        by: String,
    },
}

impl StateError {
    fn unusable(path: &Path, why: String) -> Self {
        Self::Unusable {
            path: path.to_path_buf(),
            why,
        }
    }
}

/// A state directory by its absolute path. It need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

/// Holds the directory for one supervisor; let go when dropped, and by the system when the process dies.
#[derive(Debug)]
pub struct Held {
    _lock: Lock,
}

impl StateDir {
    /// The given directory, else the one of the XDG base directory specification.
    pub fn locate(
        given: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, StateError> {
        let set = |name| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let root = given
            .or_else(|| {
                set("XDG_STATE_HOME")
                    .filter(|path| path.is_absolute())
                    .map(|path| path.join("sallyport"))
            })
            .or_else(|| set("HOME").map(|home| home.join(".local/state/sallyport")))
            .ok_or(StateError::NoHome)?;
        let root =
            std::path::absolute(&root).map_err(|error| StateError::unusable(&root, error.to_string()))?;
        Ok(Self { root })
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path below it.
    pub fn join(&self, part: &str) -> PathBuf {
        self.root.join(part)
    }

    /// The socket on which the supervisor answers the command line.
    pub fn supervisor_socket(&self) -> PathBuf {
        self.join("run/supervisor.sock")
    }

    /// Makes it, mode 0700, and checks that it is ours and can be written.
    pub fn prepare(&self) -> Result<(), StateError> {
        let longest = self.join(LONGEST_SOCKET).as_os_str().len();
        if let Some(over) = longest.checked_sub(SOCKET_PATH_LIMIT + 1) {
            return Err(StateError::TooLong {
                path: self.root.clone(),
                over: over + 1,
            });
        }
        for folder in ["", "run", "logs"] {
            self.make(&self.root.join(folder))?;
        }
        Ok(())
    }

    fn make(&self, folder: &Path) -> Result<(), StateError> {
        let unusable = |why: String| StateError::unusable(folder, why);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| unusable(format!("cannot be made: {error}")))?;
        let facts =
            std::fs::metadata(folder).map_err(|error| unusable(format!("cannot be read: {error}")))?;
        if facts.uid() != rustix::process::geteuid().as_raw() {
            return Err(unusable("belongs to another user".to_owned()));
        }
        if facts.mode() & 0o077 != 0 {
            if !self.may_close(folder) {
                return Err(unusable(
                    "is open to others and holds files that are not Sallyport's".to_owned(),
                ));
            }
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
                .map_err(|error| unusable(format!("is open to others and stays so: {error}")))?;
        }
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
            .map_err(|error| unusable(format!("cannot be written: {error}")))
    }

    /// Whether a folder may be closed to others: an empty one, or one that Sallyport made.
    fn may_close(&self, folder: &Path) -> bool {
        let empty = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
        empty || self.join("run/supervisor.lock").exists()
    }

    /// Takes the directory for this process; fails while another supervisor has it.
    pub fn hold(&self) -> Result<Held, StateError> {
        let path = self.join("run/supervisor.lock");
        match Lock::take(&path) {
            Ok(lock) => Ok(Held { _lock: lock }),
            Err(LockError::Taken { pid, .. }) => Err(StateError::Taken {
                path: self.root.clone(),
                by: holder(pid),
            }),
            Err(LockError::File { source, .. }) => {
                Err(StateError::unusable(&path, format!("cannot be locked: {source}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(given: Option<&str>, variables: &[(&str, &str)]) -> Result<StateDir, StateError> {
        StateDir::locate(given.map(PathBuf::from), |name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_directory_is_the_given_one_else_that_of_xdg_else_below_home() {
        let all = [("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(located(Some("/s"), &all).unwrap().root(), Path::new("/s"));
        assert_eq!(located(None, &all).unwrap().root(), Path::new("/x/sallyport"));
        let relative = [("XDG_STATE_HOME", "x"), ("HOME", "/h")];
        assert_eq!(
            located(None, &relative).unwrap().root(),
            Path::new("/h/.local/state/sallyport")
        );
        assert!(matches!(located(None, &[]), Err(StateError::NoHome)));
    }

    #[test]
    fn a_second_supervisor_is_refused_while_the_first_lives() {
        let folder = tempfile::tempdir().unwrap();
        let state = located(Some(folder.path().to_str().unwrap()), &[]).unwrap();
        state.prepare().unwrap();
        let held = state.hold().unwrap();
        assert!(state.hold().unwrap_err().to_string().contains("already"));
        drop(held);
        state.hold().unwrap();
    }

    #[test]
    fn an_open_directory_is_closed_and_a_long_path_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
        let state = located(Some(open.to_str().unwrap()), &[]).unwrap();
        state.prepare().unwrap();
        assert_eq!(std::fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
        let full = folder.path().join("full");
        std::fs::create_dir(&full).unwrap();
        std::fs::write(full.join("letter"), "x").unwrap();
        std::fs::set_permissions(&full, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = located(Some(full.to_str().unwrap()), &[])
            .unwrap()
            .prepare()
            .unwrap_err();
        assert!(error.to_string().contains("not Sallyport's"), "{error}");
        let long = format!("/tmp/{}", "x".repeat(90));
        let error = located(Some(&long), &[]).unwrap().prepare().unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
    }

    #[test]
    fn a_path_through_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inside = file.path().join("state");
        let error = located(Some(inside.to_str().unwrap()), &[])
            .unwrap()
            .prepare()
            .unwrap_err();
        assert!(error.to_string().contains("cannot be made"), "{error}");
    }
}
