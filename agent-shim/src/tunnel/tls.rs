//! The tunnel's TLS: the machine's certificate shown, the gateway's verified by the tunnels' own authority.
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Where certificate, key and authority lie, each as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The machine's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of the gateway's certificate.
    pub authority: PathBuf,
}

/// Why there is no TLS. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("`{}` cannot be used: {why}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The three do not fit together.
    #[error("certificate and key cannot be used together: {0}")]
    Pair(#[from] rustls::Error),
}

/// When the files were written last; another value after a renewal.
pub(super) fn stamp(files: &Files) -> [Option<SystemTime>; 3] {
    [&files.certificate, &files.key, &files.authority]
        .map(|path| std::fs::metadata(path).and_then(|found| found.modified()).ok())
}

/// Reads the files.
pub(super) fn client(files: &Files) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.authority)? {
        roots
            .add(authority)
            .map_err(|error| fault(&files.authority, &error))?;
    }
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| fault(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| fault(path, &error))?;
    if found.is_empty() {
        return Err(fault(path, &"there is no certificate in it"));
    }
    Ok(found)
}

fn fault(path: &Path, why: &dyn std::fmt::Display) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
