//! One machine's folder on the host: its files, its locks, and what keeper and driver tell each other.
use super::process::Process;
use rustix::fs::{FlockOperation, chown, flock};
use rustix::process::{Gid, Uid, geteuid};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the keeper's hidden subcommand: `sallyport machine-keeper ...` must call
/// [`keeper_main`](crate::machine::keeper::keeper_main) with what follows it.
pub const SUBCOMMAND: &str = "machine-keeper";

/// What a machine is made from, written before its keeper is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Machine id.
    pub(crate) id: String,
    /// Random: tells this machine from an earlier one with the same id.
    pub(crate) token: String,
    /// Host paths and the places inside where they are shown read-only.
    pub(crate) binds: Vec<(String, String)>,
}

/// Who keeps a machine; `init` is there once it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The machine's token.
    pub(crate) token: String,
    /// Its keeper.
    pub(crate) keeper: Process,
    /// Its process 1.
    pub(crate) init: Option<Process>,
}

/// What a keeper tells whoever started it, as one line on standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Report {
    /// The machine runs.
    Ready,
    /// It does not, and why.
    Failed(String),
}

/// What comes with the listeners.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handed {
    /// How many of the files are TCP listeners; the others are DNS sockets.
    pub(crate) redirect: usize,
}

/// An opened folder of a machine.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    handle: File,
}

impl Folder {
    /// Opens it.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let handle = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(rustix::fs::OFlags::DIRECTORY.bits()).unwrap_or(0))
            .open(path)?;
        Ok(Folder {
            path: fs::canonicalize(path)?,
            handle,
        })
    }

    /// Makes it with its spec; the folder appears whole or not at all.
    ///
    /// # Errors
    /// The disk is full, or the place is taken.
    pub(crate) fn make(path: &Path, draft: &Path, spec: &Spec) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(draft)?;
        fs::write(draft.join("machine.json"), serde_json::to_vec_pretty(spec)?)?;
        fs::write(draft.join("life.lock"), "")?;
        fs::rename(draft, path)?;
        Folder::open(path)
    }

    /// Where the machine's disk lies.
    pub(crate) fn disk(&self) -> PathBuf {
        self.path.join("disk")
    }

    /// Where it lies itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path to a file in it that is short however deep the folder lies: a socket's path has 107 bytes at most.
    /// Good for as long as this value lives.
    pub(crate) fn short(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    /// The spec.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn spec(&self) -> io::Result<Spec> {
        Ok(serde_json::from_slice(&fs::read(
            self.path.join("machine.json"),
        )?)?)
    }

    /// Who keeps it, if anybody ever did.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn kept(&self) -> io::Result<Option<Kept>> {
        match fs::read(self.path.join("kept.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes down who keeps it.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn write_kept(&self, kept: &Kept) -> io::Result<()> {
        let draft = self.path.join("kept.draft");
        fs::write(&draft, serde_json::to_vec(kept)?)?;
        fs::rename(draft, self.path.join("kept.json"))
    }

    /// Takes the lock that a keeper holds for as long as it lives; `None` if another one does.
    ///
    /// # Errors
    /// The lock file cannot be opened.
    pub(crate) fn lock_life(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join("life.lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a keeper lives. Says so by its lock, which no other process can hold by chance.
    ///
    /// # Errors
    /// The lock file cannot be opened.
    pub(crate) fn is_kept(&self) -> io::Result<bool> {
        let file = File::open(self.path.join("life.lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Prepares the disk: a copy of the shim, and folders that belong to the machine's root.
    ///
    /// # Errors
    /// The disk is full, or the shim is not there.
    pub(crate) fn lay_out(&self, shim: &Path, owner: u32) -> io::Result<()> {
        let disk = self.disk();
        let shim_folder = disk.join("root/var/lib/sallyport/bin");
        fs::create_dir_all(&shim_folder)?;
        for folder in ["upper", "work"] {
            fs::create_dir_all(disk.join(folder))?;
        }
        let copy = shim_folder.join("sallyport-shim");
        fs::copy(shim, &copy).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the shim `{}` cannot be copied: {error}", shim.display()),
            )
        })?;
        fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
        let mut own = vec![disk.clone(), disk.join("upper"), disk.join("work")];
        own.extend(
            shim_folder
                .ancestors()
                .take_while(|folder| **folder != disk)
                .map(Path::to_owned),
        );
        for folder in own {
            fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
            if geteuid().is_root() {
                chown(&folder, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
            }
        }
        Ok(())
    }
}
