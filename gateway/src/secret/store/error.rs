//! Why the local store did not do what was asked.
use std::io;
use std::path::PathBuf;

/// The name of the passphrase among a service's credentials (systemd, "System and Service Credentials").
pub const CREDENTIAL: &str = "sallyport-passphrase";
/// Fewest characters of a new passphrase.
pub(super) const SHORTEST_PASSPHRASE: usize = 12;

/// Why the store did not do what was asked. The operator's to mend, except `Name` and `Size`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be read or written.
    #[error("`{}`: {error}", .path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The key is of the wrong size, or missing while there are secrets.
    #[error("`{}` {what}; put the right key back, or move `secrets.enc` away to begin anew", .path.display())]
    Key {
        /// Path of the key.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The key is made from a passphrase, and none was given.
    #[error("`{}` is locked by a passphrase: give it with `--passphrase-file FILE` (or `SALLYPORT_PASSPHRASE_FILE`), or as the systemd credential `{credential}`", .0.display(), credential = CREDENTIAL)]
    Locked(PathBuf),
    /// The passphrase does not fit.
    #[error("`{}` does not open with this passphrase: a wrong one, or the file was changed; nothing was overwritten", .0.display())]
    Passphrase(PathBuf),
    /// A passphrase that protects nothing.
    #[error("a passphrase has at least {least} characters", least = SHORTEST_PASSPHRASE)]
    Short,
    /// The name has the very value already.
    #[error("the secret `{0}` has this value already: nothing was changed")]
    Same(String),
    /// There is no such secret.
    #[error("there is no secret `{0}`")]
    Unknown(String),
    /// The file does not open.
    #[error("`{}` does not open with the key beside it: another store's key, or the file was changed; nothing was overwritten", .0.display())]
    Sealed(PathBuf),
    /// Not a name.
    #[error("`{0}` is not a secret's name: 1 to 128 letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// Not a value.
    #[error("a secret's value has {least} to {most} bytes, not {given}", least = crate::secret::SHORTEST_VALUE, most = crate::secret::LONGEST_VALUE)]
    Size {
        /// Bytes given.
        given: usize,
    },
    /// The system failed at sealing.
    #[error("the cryptographic library failed; nothing was written")]
    Crypto,
}
