//! Makes the machine trust the gateway's authority: files for every client, and the clock.
mod env;
mod java;

pub use env::{BUNDLE_FILE, CA_FILE, inherited, profile_script, trust_variables};

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The system's bundles, by distribution; the first is made where there is none.
const SYSTEM_BUNDLES: &[&str] = &[
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];
/// The roots as they were before the authority was added.
const PRISTINE: &str = "etc/ssl/gw/system.pem";
const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// Debian's store for all JDKs.
const JAVA_SYSTEM: &str = "etc/ssl/certs/java/cacerts";
/// Managed policies of Chromium and Chrome on Linux, which use neither the system's store nor a variable.
const BROWSER_POLICIES: &[&str] = &[
    "etc/chromium/policies/managed/sallyport.json",
    "etc/opt/chrome/policies/managed/sallyport.json",
];
/// A clock that is off by less is left alone, in milliseconds.
const CLOCK_TOLERANCE_MS: i64 = 1000;

/// Writes everything below `root` (`/` in a machine); answers what could not be done.
pub fn install(root: &Path, ca_pem: &str, variables: &BTreeMap<String, String>) -> Vec<String> {
    let mut warnings = Vec::new();
    if !ca_pem.contains(PEM_BEGIN) {
        warnings
            .push("the gateway's authority is not a PEM certificate: TLS through it will fail".to_owned());
    }
    let roots = pristine_roots(root, &mut warnings);
    let ca = format!("{}\n", ca_pem.trim());
    let bundle = format!("{}\n{ca}", roots.trim_end());
    let mut put = |path: &str, content: &[u8]| {
        if let Err(error) = replace(&root.join(path), content) {
            warnings.push(format!("`/{path}` could not be written: {error}"));
        }
    };
    put("etc/ssl/gw/ca.pem", ca.as_bytes());
    put("etc/ssl/gw/bundle.pem", bundle.as_bytes());
    put(
        "usr/local/share/ca-certificates/sallyport-gateway.crt",
        ca.as_bytes(),
    );
    put(
        "etc/profile.d/zz-sallyport.sh",
        profile_script(variables).as_bytes(),
    );
    put(
        "etc/apt/apt.conf.d/99sallyport",
        format!("Acquire::https::CAInfo \"{BUNDLE_FILE}\";\n").as_bytes(),
    );
    let system: Vec<&str> = SYSTEM_BUNDLES
        .iter()
        .copied()
        .filter(|path| root.join(path).is_file())
        .collect();
    if system.is_empty() {
        put(SYSTEM_BUNDLES[0], bundle.as_bytes());
    }
    system.into_iter().for_each(|path| put(path, bundle.as_bytes()));
    let browser = browser_policy(&ca);
    BROWSER_POLICIES
        .iter()
        .for_each(|path| put(path, browser.as_bytes()));
    let store = java::store(&bundle, 0);
    for path in [java::STORE_FILE.trim_start_matches('/'), JAVA_SYSTEM] {
        if path != JAVA_SYSTEM || root.join(path).is_file() {
            put(path, &store);
        }
    }
    if let Err(error) = wgetrc(root) {
        warnings.push(format!("`/etc/wgetrc` could not be written: {error}"));
    }
    warnings
}

/// Chrome's policies `CACertificates` (DER in base64: a PEM's body without line ends) and `QuicAllowed`,
/// from <https://chromeenterprise.google/policies/>.
fn browser_policy(ca: &str) -> String {
    let lines = ca.lines().skip_while(|line| *line != PEM_BEGIN).skip(1);
    let body: String = lines.take_while(|line| !line.starts_with("-----")).collect();
    serde_json::json!({ "CACertificates": [body], "QuicAllowed": false }).to_string()
}

/// The name under which OpenSSL looks for the authority in a folder of certificates, given its subject hash.
///
/// # Errors
/// The folder cannot be written.
pub fn link_by_hash(root: &Path, hash: &str) -> io::Result<()> {
    let folder = root.join("etc/ssl/certs");
    fs::create_dir_all(&folder)?;
    for index in 0..16 {
        let link = folder.join(format!("{hash}.{index}"));
        match std::os::unix::fs::symlink(CA_FILE, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_link(&link).is_ok_and(|to| to == Path::new(CA_FILE)) {
                    return Ok(());
                }
            }
            other => return other,
        }
    }
    Err(io::Error::other(format!(
        "all names for the hash `{hash}` are taken"
    )))
}

/// Sets the clock if it is off; answers a warning if it is and cannot be set.
pub fn set_clock(unix_ms: i64) -> Option<String> {
    use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
    let now = clock_gettime(ClockId::Realtime);
    let now_ms = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    let off_ms = now_ms - unix_ms;
    if off_ms.abs() < CLOCK_TOLERANCE_MS {
        return None;
    }
    let wanted = Timespec {
        tv_sec: unix_ms.div_euclid(1000),
        tv_nsec: unix_ms.rem_euclid(1000) * 1_000_000,
    };
    let error = clock_settime(ClockId::Realtime, wanted).err()?;
    Some(format!(
        "the machine's clock is off by {off_ms} ms and could not be set: {error}"
    ))
}

fn pristine_roots(root: &Path, warnings: &mut Vec<String>) -> String {
    let pristine = root.join(PRISTINE);
    if let Ok(roots) = fs::read_to_string(&pristine) {
        return roots;
    }
    let found = SYSTEM_BUNDLES
        .iter()
        .find_map(|path| fs::read_to_string(root.join(path)).ok());
    if found.is_none() {
        warnings.push("the machine has no roots of its own (package `ca-certificates`)".to_owned());
    }
    let roots = found.unwrap_or_default();
    if let Err(error) = replace(&pristine, roots.as_bytes()) {
        warnings.push(format!("`/{PRISTINE}` could not be written: {error}"));
    }
    roots
}

fn wgetrc(root: &Path) -> io::Result<()> {
    let path = root.join("etc/wgetrc");
    let mut content = match fs::read_to_string(&path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let line = format!("ca_certificate = {BUNDLE_FILE}\n");
    if content.contains(&line) {
        return Ok(());
    }
    if !content.is_empty() && !content.ends_with('\n') {
        content.push('\n');
    }
    content.push_str(&line);
    replace(&path, content.as_bytes())
}

/// Replaces a file at once, following a link to where it really lies.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("no folder"));
    };
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{}.sallyport", name.to_string_lossy()));
    fs::write(&temporary, content)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644))?;
    fs::rename(&temporary, &path)
}

#[cfg(test)]
#[path = "trust/tests.rs"]
mod tests;
