//! All authorities of a gateway: the one that new sessions are told to trust, and those that earlier machines trust.
//!
//! `ca rotate` makes another current one and keeps the one before under `earlier/`. A session is served for as long as it
//! lives by the authority that its machine was told of, so that no running machine notices.
use super::authority::{Authority, AuthorityError, file, write_new};
use arc_swap::ArcSwap;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
/// The next authority, while a rotation is under way.
const NEXT_CERTIFICATE: &str = "next.pem";
const NEXT_KEY: &str = "next.key";
/// Folder of those before, by fingerprint.
const EARLIER: &str = "earlier";

/// What a gateway signs leaves with.
#[derive(Debug)]
pub struct Authorities {
    folder: PathBuf,
    held: ArcSwap<Held>,
}

#[derive(Debug)]
struct Held {
    current: Arc<Authority>,
    earlier: Vec<Arc<Authority>>,
}

impl Authorities {
    /// Loads them, or makes the first one: for names under `permitted` only, where some are given.
    pub fn open(folder: &Path, permitted: &[String]) -> Result<Self, AuthorityError> {
        let held = Held::load(folder, permitted)?;
        if !permitted.is_empty() && held.current.permitted() != permitted {
            tracing::warn!(
                permitted = held.current.permitted().join(" "),
                "the authority was made for other names than `--ca-permit` says; `ca rotate --ca-permit NAME` makes another"
            );
        }
        Ok(Self {
            folder: folder.to_owned(),
            held: ArcSwap::from_pointee(held),
        })
    }

    /// Reads them anew; on an error those held stay.
    pub fn reload(&self) -> Result<(), AuthorityError> {
        self.held.store(Arc::new(Held::load(&self.folder, &[])?));
        Ok(())
    }

    /// The one that new sessions trust.
    pub fn current(&self) -> Arc<Authority> {
        self.held.load().current.clone()
    }

    /// The one with this fingerprint; the current one where there is none, or none is asked for.
    pub fn of(&self, fingerprint: Option<&str>) -> Arc<Authority> {
        let held = self.held.load();
        let mut all = held.earlier.iter();
        let found = fingerprint.and_then(|asked| all.find(|earlier| earlier.fingerprint() == asked));
        found.unwrap_or(&held.current).clone()
    }
}

impl Held {
    fn load(folder: &Path, permitted: &[String]) -> Result<Self, AuthorityError> {
        let _lock = lock(folder)?;
        recover(folder)?;
        Ok(Self {
            current: Arc::new(Authority::open(folder, permitted)?),
            earlier: earlier(&folder.join(EARLIER))?,
        })
    }
}

/// Makes another current authority, for names under `permitted` only, where some are given. The one before is kept. A crash
/// at any point leaves either the one or the other current. Gives the new one's fingerprint.
pub fn rotate(folder: &Path, permitted: &[String]) -> Result<String, AuthorityError> {
    let _lock = lock(folder)?;
    recover(folder)?;
    let before = Authority::open(folder, permitted)?;
    let kept = folder.join(EARLIER);
    make_folder(&kept)?;
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    let key_pem = Zeroizing::new(std::fs::read(&key).map_err(file("read", &key))?);
    let name = before.fingerprint();
    write_new(&kept.join(format!("{name}.key")), &key_pem, 0o600)?;
    write_new(
        &kept.join(format!("{name}.pem")),
        before.certificate_pem().as_bytes(),
        0o644,
    )?;
    let (next_certificate, next_key) = (folder.join(NEXT_CERTIFICATE), folder.join(NEXT_KEY));
    let next = Authority::make(&next_certificate, &next_key, permitted)?;
    // From here on the next one is the current one: `recover` ends what a crash leaves.
    std::fs::rename(&next_key, &key).map_err(file("write", &key))?;
    std::fs::rename(&next_certificate, &certificate).map_err(file("write", &certificate))?;
    Ok(next.fingerprint().to_owned())
}

/// Removes the authorities before the current one: machines that trust them alone cannot be served any more.
pub fn retire(folder: &Path) -> Result<(), AuthorityError> {
    let _lock = lock(folder)?;
    let kept = folder.join(EARLIER);
    match std::fs::remove_dir_all(&kept) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file("remove", &kept)(error)),
        _ => Ok(()),
    }
}

/// Ends or undoes a rotation that a crash cut: once the key was moved, the certificate follows.
fn recover(folder: &Path) -> Result<(), AuthorityError> {
    let (next_certificate, next_key) = (folder.join(NEXT_CERTIFICATE), folder.join(NEXT_KEY));
    let there = |path: &Path| path.try_exists().map_err(file("look for", path));
    match (there(&next_certificate)?, there(&next_key)?) {
        (false, false) => Ok(()),
        (true, false) => {
            let certificate = folder.join(CERTIFICATE);
            std::fs::rename(&next_certificate, &certificate).map_err(file("write", &certificate))
        }
        (certificate, true) => {
            // The certificate first: alone it would mean that the key was moved.
            if certificate {
                std::fs::remove_file(&next_certificate).map_err(file("remove", &next_certificate))?;
            }
            std::fs::remove_file(&next_key).map_err(file("remove", &next_key))
        }
    }
}

fn earlier(folder: &Path) -> Result<Vec<Arc<Authority>>, AuthorityError> {
    if !folder.try_exists().map_err(file("look for", folder))? {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(file("read", folder))? {
        let certificate = entry.map_err(file("read", folder))?.path();
        let key = certificate.with_extension("key");
        // The certificate is written last: one without its key is no work of ours.
        if certificate.extension().is_some_and(|ending| ending == "pem") {
            found.push(Arc::new(Authority::load(&certificate, &key)?));
        }
    }
    Ok(found)
}

fn make_folder(folder: &Path) -> Result<(), AuthorityError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(file("create", folder))
}

/// One process at a time; let go when dropped.
fn lock(folder: &Path) -> Result<File, AuthorityError> {
    make_folder(folder)?;
    let handle = File::open(folder).map_err(file("open", folder))?;
    flock(&handle, FlockOperation::LockExclusive).map_err(|error| file("lock", folder)(error.into()))?;
    Ok(handle)
}

#[cfg(test)]
mod tests;
