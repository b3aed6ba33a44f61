//! Certificates of remote machines: an authority of its own, trusted for nothing but tunnels, and what it signs.
//!
//! A machine makes its key itself and sends a request (PKCS#10); of that only the key is taken. The session's id stands in
//! the certificate as `sallyport://session/ID`; which certificates are good for a session is kept with the session.
use super::authority::{Authority, AuthorityError, random_serial};
use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The name in the gateway's certificate, which machines expect at whatever address they dial.
pub const GATEWAY_NAME: &str = "gateway.sallyport.internal";
/// A machine's certificate is good for 12 hours; a new one is asked for in time.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// A machine's clock may be behind by so much.
const SKEW: Duration = Duration::from_secs(3600);
/// The gateway's own certificate is used for a day, then made anew; it is good for 30 days each way.
const KEPT: Duration = Duration::from_secs(86_400);
const VALID_EACH_WAY: Duration = Duration::from_secs(30 * 86_400);
/// Before the session's id in a certificate.
const SESSION_URI: &str = "sallyport://session/";
/// Longest request for a certificate, in bytes of PEM.
const REQUEST_BYTES: usize = 16 * 1024;
/// An uncompressed point of P-256 (SEC 1 section 2.3.3).
const POINT_BYTES: usize = 65;

/// Why a machine gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RequestFault {
    /// The caller's: what came is no request that is served.
    #[error(
        "the certificate request cannot be used: {0}; `sallyport-shim tunnel request-certificate` makes one"
    )]
    Request(String),
    /// Ours: signing failed.
    #[error("cannot make a certificate: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// Why tunnels cannot be accepted. The operator's to mend, or ours.
#[derive(Debug, thiserror::Error)]
pub enum TunnelTlsError {
    /// Signing failed.
    #[error("cannot make the gateway's certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refused.
    #[error("TLS for tunnels cannot be set up: {0}")]
    Tls(String),
}

/// A certificate for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// PEM.
    pub pem: String,
    /// SHA-256 of its DER, hex.
    pub fingerprint: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// What certificates for remote machines are made from.
#[derive(Debug, Clone)]
pub struct Tunnels {
    /// Where their tunnels come in.
    pub address: SocketAddr,
    /// Who signs.
    pub authority: Arc<TunnelAuthority>,
}

/// The authority of tunnels.
pub struct TunnelAuthority {
    authority: Authority,
    server: ArcSwapOption<(Instant, Arc<ServerConfig>)>,
}

impl std::fmt::Debug for TunnelAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelAuthority").finish_non_exhaustive()
    }
}

impl TunnelAuthority {
    /// Loads the authority from `tunnel-ca` in the state folder, or makes one there.
    pub fn open(state: &Path) -> Result<Self, AuthorityError> {
        Ok(Self {
            authority: Authority::open(&state.join("tunnel-ca"), &[])?,
            server: ArcSwapOption::empty(),
        })
    }

    /// What machines verify the gateway by, PEM.
    pub fn certificate_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// Signs for the key of a request; everything else that the request says is passed over.
    pub fn issue(&self, session: &str, request_pem: &str) -> Result<Issued, RequestFault> {
        if request_pem.len() > REQUEST_BYTES {
            return Err(RequestFault::Request(format!(
                "it is longer than {REQUEST_BYTES} bytes"
            )));
        }
        // Parsing verifies that whoever asks has the key.
        let request = CertificateSigningRequestParams::from_pem(request_pem)
            .map_err(|error| RequestFault::Request(error.to_string()))?;
        let key = &request.public_key;
        if *key.algorithm() != PKCS_ECDSA_P256_SHA256
            || rcgen::PublicKeyData::der_bytes(key).len() != POINT_BYTES
        {
            return Err(RequestFault::Request("its key is not of P-256".to_owned()));
        }
        let mut params = leaf(ExtendedKeyUsagePurpose::ClientAuth)?;
        let uri = format!("{SESSION_URI}{session}");
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        let now = SystemTime::now();
        let end = Timestamp::try_from(now + LIFETIME)
            .map_err(|error| RequestFault::Request(format!("the clock is wrong: {error}")))?;
        params.not_before = (now - SKEW).into();
        params.not_after = SystemTime::from(end).into();
        let certificate = params.signed_by(key, self.authority.issuer())?;
        Ok(Issued {
            pem: certificate.pem(),
            fingerprint: fingerprint(certificate.der()),
            expires_at: end,
        })
    }

    /// The gateway's side of a tunnel's TLS: 1.3 alone, a certificate of this authority demanded, nothing resumed.
    pub fn server(&self) -> Result<Arc<ServerConfig>, TunnelTlsError> {
        if let Some(made) = self.server.load_full().filter(|made| made.0.elapsed() < KEPT) {
            return Ok(made.1.clone());
        }
        let config = Arc::new(self.make()?);
        self.server
            .store(Some(Arc::new((Instant::now(), config.clone()))));
        Ok(config)
    }

    fn make(&self) -> Result<ServerConfig, TunnelTlsError> {
        let tls = |error: &dyn std::fmt::Display| TunnelTlsError::Tls(error.to_string());
        let provider = crate::crypto::provider();
        let mut roots = RootCertStore::empty();
        roots
            .add(self.authority.certificate().clone())
            .map_err(|error| tls(&error))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| tls(&error))?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = leaf(ExtendedKeyUsagePurpose::ServerAuth)?;
        params.subject_alt_names = vec![SanType::DnsName(GATEWAY_NAME.try_into()?)];
        params.not_before = (SystemTime::now() - VALID_EACH_WAY).into();
        params.not_after = (SystemTime::now() + VALID_EACH_WAY).into();
        let certificate = params.signed_by(&key, self.authority.issuer())?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| tls(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(|error| tls(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A ticket would outlive what was found out about the certificate.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok(config)
    }
}

/// What all of the authority's certificates have in common.
fn leaf(purpose: ExtendedKeyUsagePurpose) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "Sallyport tunnel");
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.serial_number = Some(random_serial()?);
    Ok(params)
}

/// SHA-256 of a certificate, hex.
pub fn fingerprint(certificate: &[u8]) -> String {
    Sha256::digest(certificate)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The session that a certificate names; to be read from verified certificates only.
pub fn session_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate
        .valid_uri_names()
        .filter_map(|uri| uri.strip_prefix(SESSION_URI));
    let first = names.next()?.to_owned();
    names.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &KeyPair) -> String {
        CertificateParams::new(["gateway.sallyport.internal".to_owned()])
            .unwrap()
            .serialize_request(key)
            .unwrap()
            .pem()
            .unwrap()
    }

    #[test]
    fn a_certificate_names_its_session_and_nothing_that_the_request_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let authority = TunnelAuthority::open(folder.path()).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let issued = authority.issue("run-1", &request(&key)).unwrap();
        let der = rustls_pemfile::certs(&mut issued.pem.as_bytes())
            .next()
            .unwrap()
            .unwrap();
        assert_eq!(session_of(&der).as_deref(), Some("run-1"));
        assert_eq!(fingerprint(&der), issued.fingerprint);
        let read = webpki::EndEntityCert::try_from(&der).unwrap();
        assert_eq!(read.valid_dns_names().count(), 0);
    }

    #[test]
    fn the_authority_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = TunnelAuthority::open(folder.path()).unwrap();
        let second = TunnelAuthority::open(folder.path()).unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
    }

    #[test]
    fn requests_that_are_none_or_of_another_kind_of_key_are_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let authority = TunnelAuthority::open(folder.path()).unwrap();
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let mut torn = request(&KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
        torn.truncate(torn.len() / 2);
        for bad in [
            String::new(),
            torn,
            request(&other),
            "x".repeat(REQUEST_BYTES + 1),
        ] {
            let error = authority.issue("run-1", &bad).unwrap_err().to_string();
            assert!(error.contains("request-certificate"), "{error}");
        }
    }
}
