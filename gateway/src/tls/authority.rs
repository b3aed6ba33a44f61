//! The authority that signs leaves: made at the first start, kept in two files, loaded at every other.
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, GeneralSubtree, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustix::fs::{Mode, OFlags};
use rustls::pki_types::CertificateDer;
use sallyport_policy::Host;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const DAY: Duration = Duration::from_secs(86_400);

/// Why there is no authority. The operator's to mend; a retry alone does not help.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file or directory cannot be used.
    #[error("cannot {action} {}: {source}; check the directory's owner and mode, or name another one", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Only one of the two files is there.
    #[error("{} is missing while its companion exists; restore it, or remove both to make a new authority", .0.display())]
    Half(PathBuf),
    /// The key file may be read by others.
    #[error("{} may be read by others (mode {mode:o}); set its mode to 600", path.display())]
    Open {
        /// The key file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The files are there and make no authority.
    #[error("{} is no usable certificate authority: {why}; restore it, or remove both files to make a new one", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Key generation or signing failed.
    #[error("cannot make a certificate: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// The authority, ready to sign.
pub struct Authority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    fingerprint: String,
    permitted: Vec<String>,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Loads the authority from `directory`, or makes one there: `ca.pem` for everybody, `ca.key` with mode 0600.
    ///
    /// A new one may vouch for names under `permitted` only, where some are given.
    pub fn open(directory: &Path, permitted: &[String]) -> Result<Self, AuthorityError> {
        std::fs::create_dir_all(directory).map_err(file("create", directory))?;
        let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
        match (exists(&certificate)?, exists(&key)?) {
            (true, true) => Self::load(&certificate, &key),
            (false, false) => Self::make(&certificate, &key, permitted),
            // The certificate is written last: a key alone is what a crash during the first start leaves.
            (false, true) => {
                std::fs::remove_file(&key).map_err(file("remove", &key))?;
                Self::make(&certificate, &key, permitted)
            }
            (true, false) => Err(AuthorityError::Half(key)),
        }
    }

    /// The certificate as PEM, to be trusted inside machines.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The certificate as DER, for the chain that leaves are presented with.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// SHA-256 of the certificate, in hex.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Names at or under which it may vouch for a host; none means for every host.
    pub fn permitted(&self) -> &[String] {
        &self.permitted
    }

    /// Whether a leaf for this host would be believed (RFC 5280 section 4.2.1.10).
    pub fn permits(&self, host: &Host) -> bool {
        let under = |domain: &String| match host {
            Host::Name(name) => name
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            Host::Address(_) => false,
        };
        self.permitted.is_empty() || self.permitted.iter().any(under)
    }

    /// Signs with the authority's key.
    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    pub(super) fn make(
        certificate_path: &Path,
        key_path: &Path,
        permitted: &[String],
    ) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        let serial = random_serial()?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        // The tail tells authorities of several installations apart in a trust store.
        let tail = serial
            .to_bytes()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("Sallyport gateway {tail}"));
        params.serial_number = Some(serial);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints = constraints(permitted);
        params.not_before = (SystemTime::now() - 30 * DAY).into();
        params.not_after = (SystemTime::now() + 3650 * DAY).into();
        let certificate = params.self_signed(&key)?;
        write_new(key_path, key.serialize_pem().as_bytes(), 0o600)?;
        write_new(certificate_path, certificate.pem().as_bytes(), 0o644)?;
        Self::assemble(
            certificate.pem(),
            certificate.der().clone(),
            key,
            certificate_path,
        )
    }

    pub(super) fn load(certificate_path: &Path, key_path: &Path) -> Result<Self, AuthorityError> {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(key_path)
            .map_err(file("read", key_path))?
            .permissions()
            .mode()
            & 0o777;
        if mode & 0o077 != 0 {
            return Err(AuthorityError::Open {
                path: key_path.to_owned(),
                mode,
            });
        }
        let unusable = |path: &Path, why: String| AuthorityError::Unusable {
            path: path.to_owned(),
            why,
        };
        let key_pem = std::fs::read_to_string(key_path).map_err(file("read", key_path))?;
        let key = KeyPair::from_pem(&key_pem).map_err(|error| unusable(key_path, error.to_string()))?;
        let pem = std::fs::read_to_string(certificate_path).map_err(file("read", certificate_path))?;
        let certificate = rustls_pemfile::certs(&mut pem.as_bytes())
            .next()
            .and_then(Result::ok)
            .ok_or_else(|| unusable(certificate_path, "it holds no PEM certificate".to_owned()))?;
        Self::assemble(pem, certificate, key, certificate_path)
    }

    fn assemble(
        certificate_pem: String,
        certificate: CertificateDer<'static>,
        key: KeyPair,
        path: &Path,
    ) -> Result<Self, AuthorityError> {
        // Loaded from the certificate itself, so that leaves name the key identifier that is stored there.
        let issuer =
            Issuer::from_ca_cert_der(&certificate, key).map_err(|error| AuthorityError::Unusable {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
        Ok(Self {
            permitted: permitted(&certificate).map_err(|why| AuthorityError::Unusable {
                path: path.to_owned(),
                why,
            })?,
            fingerprint: Sha256::digest(&certificate)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            certificate_pem,
            certificate,
            issuer,
        })
    }
}

/// Names under these, and no addresses at all.
fn constraints(permitted: &[String]) -> Option<NameConstraints> {
    let every = [
        GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
        GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
    ];
    (!permitted.is_empty()).then(|| NameConstraints {
        permitted_subtrees: permitted.iter().cloned().map(GeneralSubtree::DnsName).collect(),
        excluded_subtrees: every.into(),
    })
}

/// The names that a certificate is constrained to.
fn permitted(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    let constraints = parsed.name_constraints().map_err(|error| error.to_string())?;
    let subtrees = constraints.and_then(|found| found.value.permitted_subtrees.as_ref());
    let names = subtrees
        .into_iter()
        .flatten()
        .filter_map(|subtree| match subtree.base {
            GeneralName::DNSName(name) => Some(name.to_owned()),
            _ => None,
        });
    Ok(names.collect())
}

/// A positive serial number with 127 random bits (RFC 5280 section 4.1.2.2).
pub(super) fn random_serial() -> Result<SerialNumber, rcgen::Error> {
    let mut bytes = [0u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn exists(path: &Path) -> Result<bool, AuthorityError> {
    path.try_exists().map_err(file("look for", path))
}

pub(super) fn file<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(std::io::Error) -> AuthorityError + 'a {
    move |source| AuthorityError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Writes a file that does not exist yet, whole or not at all.
pub(super) fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    let temporary = path.with_extension("new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(&temporary, flags, Mode::from_raw_mode(mode))
        .map_err(|error| file("write", &temporary)(error.into()))?;
    rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(mode))
        .map_err(|error| file("set the mode of", &temporary)(error.into()))?;
    let mut handle = std::fs::File::from(descriptor);
    handle
        .write_all(content)
        .and_then(|()| handle.sync_all())
        .map_err(file("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_start_makes_an_authority_and_the_next_one_loads_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path(), &[]).unwrap();
        let mode = std::fs::metadata(directory.path().join(KEY))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600);
        let second = Authority::open(directory.path(), &[]).unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
    }

    #[test]
    fn a_missing_key_is_named_and_nothing_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path(), &[]).unwrap();
        std::fs::remove_file(directory.path().join(KEY)).unwrap();
        let error = Authority::open(directory.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("ca.key is missing"), "{error}");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path(), &[]).unwrap();
        let key = directory.path().join(KEY);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Authority::open(directory.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("set its mode to 600"), "{error}");
    }

    #[test]
    fn a_broken_key_is_named() {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path(), &[]).unwrap();
        std::fs::write(directory.path().join(KEY), "nonsense").unwrap();
        let error = Authority::open(directory.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("ca.key is no usable"), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Authority::open(&file.join("ca"), &[]).unwrap_err().to_string();
        assert!(
            error.contains("cannot create") && error.contains("file/ca"),
            "{error}"
        );
    }
}
