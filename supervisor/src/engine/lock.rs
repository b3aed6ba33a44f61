//! One supervisor for a state directory: the second one is refused, with the first one's process id.
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

/// Why the directory is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another supervisor has it.
    #[error(
        "`{folder}` is in use by another supervisor (process {pid}): stop that one, or choose another state directory"
    )]
    Taken {
        /// The directory.
        folder: PathBuf,
        /// Its process id, as it wrote it.
        pid: String,
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

impl Lock {
    /// Takes the lock of a directory.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join("supervisor.lock");
        let fail = |source| LockError::File {
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(&path).map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.take(32).read_to_string(&mut pid).map_err(fail)?;
                let pid = if pid.trim().is_empty() {
                    "unknown".into()
                } else {
                    pid.trim().to_owned()
                };
                return Err(LockError::Taken {
                    folder: folder.into(),
                    pid,
                });
            }
            Err(fault) => return Err(fail(fault.into())),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { _file: file })
    }
}
