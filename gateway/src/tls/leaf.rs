//! Leaves: one certificate for exactly the name or address that was dialled, made once and cached.
use super::authorities::Authorities;
use super::authority::{Authority, AuthorityError, random_serial};
use crate::metrics::path::Path;
use moka::sync::Cache;
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use sallyport_policy::Host;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);
/// Leaves are good from 30 days ago (a machine's clock may be wrong by days) to 30 days ahead.
const VALID_EACH_WAY: u32 = 30;
/// A leaf is used for a day, then made anew.
const KEPT: Duration = DAY;
/// Leaves held at most.
const HELD: u64 = 10_000;
/// Leaves held at most for those who have not said who they are: they push out each other's only.
const STRANGERS_HELD: u64 = 256;

/// Why there is no leaf.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeafError {
    /// The name cannot stand in a certificate.
    #[error("no certificate can be made for `{0}`")]
    Name(String),
    /// The operator's: the authority may not vouch for it.
    #[error(
        "the gateway's authority may not vouch for `{host}`, only for names under `{}`; the operator makes another one with `ca \
         rotate --ca-permit NAME`", .permitted.join("`, `")
    )]
    NotPermitted {
        /// What was dialled.
        host: String,
        /// What it may vouch for.
        permitted: Vec<String>,
    },
    /// Signing or the TLS library failed.
    #[error("cannot make a leaf: {0}")]
    Crypto(String),
}

/// By the authority's fingerprint and the host.
type Kept = Cache<(String, Host), Arc<ServerConfig>>;

/// Makes and keeps the server side of intercepted TLS, by host.
pub struct Leaves {
    authorities: Arc<Authorities>,
    key: KeyPair,
    signing: Arc<dyn rustls::sign::SigningKey>,
    provider: Arc<rustls::crypto::CryptoProvider>,
    cache: Kept,
    strangers: Kept,
    counters: Arc<Path>,
}

impl std::fmt::Debug for Leaves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaves")
            .field("cached", &self.cache.entry_count())
            .finish_non_exhaustive()
    }
}

impl Leaves {
    /// Leaves signed by these, with one P-256 key for this process; `counters` count them.
    pub fn new(authorities: Arc<Authorities>, counters: Arc<Path>) -> Result<Self, AuthorityError> {
        let provider = crate::crypto::provider();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = provider
            .key_provider
            .load_private_key(der)
            .map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
        let kept = |most| Cache::builder().max_capacity(most).time_to_live(KEPT).build();
        Ok(Self {
            authorities,
            key,
            signing,
            provider,
            cache: kept(HELD),
            strangers: kept(STRANGERS_HELD),
            counters,
        })
    }

    /// The current authority's certificate as PEM.
    pub fn authority_pem(&self) -> String {
        self.authorities.current().certificate_pem().to_owned()
    }

    /// The TLS configuration for a dialled host, signed by the authority that the machine trusts (the current one where it was
    /// told of none); under concurrency each host's leaf is made once.
    pub fn for_host(&self, host: &Host, trusted: Option<&str>) -> Result<Arc<ServerConfig>, LeafError> {
        self.find(&self.cache, host, &self.authorities.of(trusted))
    }

    /// The same for somebody who has not said yet who it is, signed by the current authority.
    pub fn for_stranger(&self, host: &Host) -> Result<Arc<ServerConfig>, LeafError> {
        self.find(&self.strangers, host, &self.authorities.current())
    }

    fn find(&self, kept: &Kept, host: &Host, authority: &Authority) -> Result<Arc<ServerConfig>, LeafError> {
        let key = (authority.fingerprint().to_owned(), host.clone());
        let mut there = true;
        let found = kept.try_get_with(key, || {
            there = false;
            self.make(host, authority)
        });
        self.counters.leaf_asked(there);
        found.map_err(|error: Arc<LeafError>| LeafError::clone(&error))
    }

    fn make(&self, host: &Host, authority: &Authority) -> Result<Arc<ServerConfig>, LeafError> {
        let crypto = |error: &dyn std::fmt::Display| LeafError::Crypto(error.to_string());
        let leaf = self.sign(host, authority)?;
        self.counters.leaf_signed();
        let chain = vec![leaf, authority.certificate().clone()];
        let certified = CertifiedKey::new(chain, self.signing.clone());
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(|error| crypto(&error))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Most clients offer both, and put the slower one first; those that offer one are served with it.
        config.ignore_client_order = true;
        // One is enough for a client that comes again; each costs bytes and time in the handshake.
        config.send_tls13_tickets = 1;
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|error| crypto(&error))?;
        config.session_storage = match host {
            Host::Name(_) => ServerSessionMemoryCache::new(64),
            Host::Address(_) => Arc::new(NoServerSessionStorage {}),
        };
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }

    /// Signs a leaf: empty subject, critical SAN with the one name, AKI, server use only (RFC 5280, RFC 9525).
    fn sign(&self, host: &Host, authority: &Authority) -> Result<CertificateDer<'static>, LeafError> {
        if !authority.permits(host) {
            return Err(LeafError::NotPermitted {
                host: host.to_string(),
                permitted: authority.permitted().to_vec(),
            });
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![match host {
            Host::Name(name) => {
                let text = (**name)
                    .try_into()
                    .map_err(|_| LeafError::Name(name.to_string()))?;
                SanType::DnsName(text)
            }
            Host::Address(address) => SanType::IpAddress(*address),
        }];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = (SystemTime::now() - VALID_EACH_WAY * DAY).into();
        params.not_after = (SystemTime::now() + VALID_EACH_WAY * DAY).into();
        let crypto = |error: rcgen::Error| LeafError::Crypto(error.to_string());
        params.serial_number = Some(random_serial().map_err(crypto)?);
        let leaf = params.signed_by(&self.key, authority.issuer()).map_err(crypto)?;
        Ok(leaf.der().clone())
    }
}

#[cfg(test)]
mod tests;
