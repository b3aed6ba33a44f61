//! What the origin is known by: its certificate authority, its leaf, and the token that it demands for a push.
use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that identifies one origin.
pub(crate) struct Identity {
    /// PEM of the authority, for those who shall trust it.
    pub(crate) ca_file: PathBuf,
    /// The token, for those who shall use it.
    pub(crate) token_file: PathBuf,
    /// The token itself, as it must arrive here.
    pub(crate) token: String,
    /// Server configuration with the leaf.
    pub(crate) tls: Arc<rustls::ServerConfig>,
}

impl Identity {
    /// Makes a new authority, a leaf for the names, and a token.
    pub(crate) fn make(dir: &Path, names: &[String]) -> anyhow::Result<Self> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name.push(DnType::CommonName, "origin authority");
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate()?;
        let mut leaf = CertificateParams::new(names.to_vec())?;
        leaf.use_authority_key_identifier_extension = true;
        let leaf = leaf.signed_by(&key, &issuer)?;
        let chain: Vec<CertificateDer<'static>> = vec![leaf.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let token = format!("ghp_{}", hex(&random::<18>()?));
        let ca_file = keep(dir, "ca.pem", ca_certificate.pem().as_bytes())?;
        let token_file = keep(dir, "token", token.as_bytes())?;
        Ok(Self {
            ca_file,
            token_file,
            token,
            tls: Arc::new(tls),
        })
    }
}

/// Bytes from the operating system's generator.
pub(crate) fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    anyhow::ensure!(got == N, "the system gave {got} random bytes instead of {N}");
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file that only its owner can read, and gives its absolute path.
fn keep(dir: &Path, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = dir.join(name);
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot write `{}`", path.display()))?;
    file.write_all(content)?;
    Ok(path.canonicalize()?)
}
