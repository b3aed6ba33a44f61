//! A lock file that one process holds: the second one is refused, with the first one's process id.
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Held as long as this lives; the kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("`{path}` is held by {}", holder(*.pid))]
    Taken {
        /// The file.
        path: PathBuf,
        /// The other's process id, where it has written it already.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("`{path}` cannot be used as a lock: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Who holds a lock, for messages.
pub fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "a process that has not told its id yet".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl Lock {
    /// Takes a lock file, making it where it is not there.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let fail = |source| LockError::File {
            path: path.to_path_buf(),
            source,
        };
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(path).map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                file.take(32).read_to_string(&mut text).map_err(fail)?;
                return Err(LockError::Taken {
                    path: path.to_path_buf(),
                    pid: text.trim().parse().ok(),
                });
            }
            Err(fault) => return Err(fail(fault.into())),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { _file: file })
    }
}
