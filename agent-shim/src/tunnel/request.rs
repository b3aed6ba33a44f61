//! The machine's key, which never leaves it, and the request (PKCS#10) for a certificate for it.
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The key's file cannot be read or written.
    #[error("`{}`: {error}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The key's file holds something else, or the key cannot sign.
    #[error("no request can be made with the key in `{}`: {error}; remove it to have a new one made", .path.display())]
    Key {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        error: rcgen::Error,
    },
}

/// The request as PEM, for the key in this file; one is made (P-256, mode 0600) where there is no file.
///
/// # Errors
/// The file cannot be read or written, or holds no key.
pub fn request_certificate(path: &Path) -> Result<String, RequestError> {
    let file = |error| RequestError::File {
        path: path.to_owned(),
        error,
    };
    let wrong = |error| RequestError::Key {
        path: path.to_owned(),
        error,
    };
    let key = match std::fs::read_to_string(path) {
        Ok(pem) => KeyPair::from_pem(&pem).map_err(wrong)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(wrong)?;
            write_new(path, key.serialize_pem().as_bytes()).map_err(file)?;
            key
        }
        Err(error) => return Err(file(error)),
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(wrong)?;
    request.pem().map_err(wrong)
}

/// Whole under its name, or not at all.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::request_certificate;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_for_its_owner_alone_and_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.key");
        let first = request_certificate(&path).unwrap();
        assert!(
            first.starts_with("-----BEGIN CERTIFICATE REQUEST-----"),
            "{first}"
        );
        let key = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        request_certificate(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), key);
    }

    #[test]
    fn what_is_no_key_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.key");
        std::fs::write(&path, "nonsense").unwrap();
        let error = request_certificate(&path).unwrap_err().to_string();
        assert!(
            error.contains("machine.key") && error.contains("remove it"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "nonsense");
    }
}
