//! The key by which machines know this gateway over ssh: made at the first start, kept in one file, loaded at every other.
use russh::keys::key::safe_rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "ssh_host_ed25519_key";

/// Why there is no host key. The operator's to mend; a retry alone does not help.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file cannot be used.
    #[error("cannot use {}: {error}; check the folder's owner and mode", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Others may read it.
    #[error("{} may be read by others (mode {mode:o}); set its mode to 600", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is there and holds no key.
    #[error("{} holds no key that can be used: {error}; restore it, or remove it to make a new one", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: russh::keys::ssh_key::Error,
    },
}

/// The key, ready to sign.
pub struct HostKey {
    key: PrivateKey,
    line: String,
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostKey").finish_non_exhaustive()
    }
}

impl HostKey {
    /// Loads the key from a folder, or makes one there: `ssh_host_ed25519_key`, mode 0600, in OpenSSH's form.
    pub fn open(folder: &Path) -> Result<Self, HostKeyError> {
        let path = folder.join(FILE);
        let key = match std::fs::read(&path) {
            Ok(text) => load(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path)?,
            Err(error) => return Err(HostKeyError::File { path, error }),
        };
        let public = key
            .public_key()
            .to_openssh()
            .map_err(|error| HostKeyError::Unusable { path, error })?;
        Ok(Self {
            key,
            line: format!("* {public}"),
        })
    }

    /// A line of OpenSSH's `known_hosts` for machines: every host that they reach over ssh shows this key.
    pub fn known_hosts_line(&self) -> &str {
        &self.line
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }
}

fn load(path: &Path, text: &[u8]) -> Result<PrivateKey, HostKeyError> {
    let metadata = std::fs::metadata(path).map_err(|error| HostKeyError::File {
        path: path.to_owned(),
        error,
    })?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(HostKeyError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    PrivateKey::from_openssh(text).map_err(unusable(path))
}

fn make(path: &Path) -> Result<PrivateKey, HostKeyError> {
    let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).map_err(unusable(path))?;
    let text = key.to_openssh(LineEnding::LF).map_err(unusable(path))?;
    let beside = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|error| HostKeyError::File {
        path: path.to_owned(),
        error,
    })?;
    Ok(key)
}

fn unusable(path: &Path) -> impl FnOnce(russh::keys::ssh_key::Error) -> HostKeyError {
    let path = path.to_owned();
    |error| HostKeyError::Unusable { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_makes_a_key_and_the_next_one_loads_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = HostKey::open(folder.path()).unwrap();
        assert!(first.known_hosts_line().starts_with("* ssh-ed25519 AAAA"));
        let again = HostKey::open(folder.path()).unwrap();
        assert_eq!(first.known_hosts_line(), again.known_hosts_line());
        let path = folder.path().join(FILE);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_none_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        HostKey::open(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            HostKey::open(folder.path()),
            Err(HostKeyError::Open { .. })
        ));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "no key").unwrap();
        assert!(matches!(
            HostKey::open(folder.path()),
            Err(HostKeyError::Unusable { .. })
        ));
    }
}
