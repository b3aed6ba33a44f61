//! Random tokens, their digests, and files that only the owner can read.
use super::PeopleError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// SHA-256 of a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares in constant time.
    pub(super) fn same(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

/// A new token of 256 bits (base64url, 43 characters) and its digest.
pub(super) fn fresh() -> Result<(String, Digest), PeopleError> {
    let mut bytes = [0_u8; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| PeopleError::Random)?;
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let digest = Digest::of(&token);
    Ok((token, digest))
}

/// Replaces a file as a whole; mode 0600.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}
