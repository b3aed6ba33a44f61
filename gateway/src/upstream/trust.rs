//! Whom the gateway believes upstream: the system's authorities, the operator's, and those of one session.
use super::UpstreamFault;
use super::verify::Verifier;
use crate::secret::client_certificate::Identity;
use crate::session::Session;
use arc_swap::ArcSwap;
use moka::sync::Cache;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use sallyport_policy::Host;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// A hash over a session's own authorities.
pub(super) type Fingerprint = [u8; 32];

/// Session, all authorities that an upstream is checked with, and the client certificate that is shown.
type ConfigKey = (String, Checked, Option<Fingerprint>);

/// The authorities with which an upstream is checked: the gateway's, and the session's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Checked {
    pub(super) gateway: Fingerprint,
    pub(super) session: Fingerprint,
}

/// Authorities that were read, by count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roots {
    /// The system's.
    pub system: usize,
    /// The operator's.
    pub own: usize,
    /// Files of the system's that could not be read, or not whole.
    pub unread: usize,
    /// Whether they are others than those before.
    pub changed: bool,
}

/// What every session trusts.
pub(super) struct Base {
    roots: RootCertStore,
    hash: Fingerprint,
    /// How many of the system's are among them.
    system: usize,
}

impl Base {
    /// Tells these from others.
    pub(super) fn hash(&self) -> &Fingerprint {
        &self.hash
    }

    /// These, and those of a session.
    pub(super) fn checked(&self, session: &Session) -> Checked {
        Checked {
            gateway: self.hash,
            session: session.upstream_roots_hash(),
        }
    }
}

/// TLS settings towards upstreams. One configuration a session and client certificate, so that no ticket is shared between two.
pub(super) struct Trust {
    base: ArcSwap<Base>,
    provider: Arc<rustls::crypto::CryptoProvider>,
    configs: Cache<ConfigKey, Arc<ClientConfig>>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust")
            .field("roots", &self.base.load().roots.len())
            .finish_non_exhaustive()
    }
}

impl Trust {
    /// System authorities and those in `roots_pem`. A system authority that cannot be read is skipped with a warning.
    pub(super) fn new(roots_pem: &[u8]) -> Result<Self, UpstreamFault> {
        let (base, _) = read(roots_pem)?;
        let configs = Cache::builder()
            .max_capacity(2_000)
            .time_to_idle(Duration::from_secs(3600))
            .build();
        Ok(Self {
            base: ArcSwap::from_pointee(base),
            provider: crate::crypto::provider(),
            configs,
        })
    }

    /// What is trusted now; a connection is looked for, checked and kept with one and the same.
    pub(super) fn now(&self) -> Arc<Base> {
        self.base.load_full()
    }

    /// Reads the system's authorities again, with these besides. Where they cannot be used, nothing changes.
    pub(super) fn renew(&self, roots_pem: &[u8]) -> Result<Roots, UpstreamFault> {
        let (base, mut roots) = read(roots_pem)?;
        let before = self.base.load();
        roots.changed = base.hash != before.hash;
        if roots.changed {
            // A bundle that is missing, or just being written, must not take all trust away.
            if base.system < before.system && (base.system == 0 || roots.unread > 0) {
                return Err(UpstreamFault::Roots(format!(
                    "{} of the system's authorities can be read, {} could before; is their file whole?",
                    base.system, before.system
                )));
            }
            self.make(&base, "", None)?;
            self.base.store(Arc::new(base));
        }
        Ok(roots)
    }

    /// The connector of a session, offering h2 and http/1.1, and showing a client certificate where one is given.
    pub(super) fn connector(
        &self,
        base: &Base,
        session: &Session,
        identity: Option<&Identity>,
    ) -> Result<TlsConnector, UpstreamFault> {
        let roots_pem = session.upstream_roots_pem();
        let shown = identity.map(Identity::version);
        let key = (session.id().to_owned(), base.checked(session), shown);
        self.configs
            .try_get_with(key, || self.make(base, &roots_pem, identity).map(Arc::new))
            .map(TlsConnector::from)
            .map_err(|error: Arc<UpstreamFault>| UpstreamFault::clone(&error))
    }

    /// The settings towards the parent proxy itself: the gateway's own authorities, no offers of ALPN.
    pub(super) fn to_parent(&self) -> Result<Arc<ClientConfig>, UpstreamFault> {
        let mut config = self.make(&self.now(), "", None)?;
        config.alpn_protocols.clear();
        Ok(Arc::new(config))
    }

    /// The connector of a session for another protocol than HTTP, by its name in ALPN (RFC 7301). Nothing is resumed: tickets are
    /// kept by host alone, and another server may listen on another port.
    pub(super) fn speaking(
        &self,
        session: &Session,
        identity: Option<&Identity>,
        protocol: &'static [u8],
    ) -> Result<TlsConnector, UpstreamFault> {
        let mut config = self.make(&self.now(), &session.upstream_roots_pem(), identity)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn make(
        &self,
        base: &Base,
        roots_pem: &str,
        identity: Option<&Identity>,
    ) -> Result<ClientConfig, UpstreamFault> {
        let mut roots = base.roots.clone();
        add(&mut roots, roots_pem.as_bytes())?;
        let verifier = Verifier::new(roots, self.provider.clone()).map_err(UpstreamFault::Roots)?;
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| UpstreamFault::Roots(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// How servers that are no session's are known: by the system's authorities and those in `roots_pem`, which are the operator's to mend.
pub fn trusting(roots_pem: &[u8]) -> Result<ClientConfig, UpstreamFault> {
    let trust = Trust::new(roots_pem)?;
    let mut config = trust.make(&trust.now(), "", None)?;
    config.alpn_protocols.clear();
    Ok(config)
}

/// The name that the upstream's certificate must be for: the canonical one that was decided.
pub(super) fn server_name(host: &Host) -> Result<ServerName<'static>, UpstreamFault> {
    match host {
        Host::Name(name) => ServerName::try_from(name.to_string())
            .map_err(|_| UpstreamFault::Tls(format!("no certificate can be checked for `{name}`"))),
        Host::Address(address) => Ok(ServerName::from(*address)),
    }
}

/// The system's authorities and those in `roots_pem`, for whatever the gateway itself dials.
pub fn roots(roots_pem: &[u8]) -> Result<RootCertStore, UpstreamFault> {
    read(roots_pem).map(|(base, _)| base.roots)
}

fn read(roots_pem: &[u8]) -> Result<(Base, Roots), UpstreamFault> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "some of the system's authorities cannot be read");
    }
    let unread = system.errors.len();
    let mut hash = Sha256::new();
    for certificate in &system.certs {
        hash.update(certificate);
    }
    hash.update(roots_pem);
    roots.add_parsable_certificates(system.certs);
    let system = roots.len();
    add(&mut roots, roots_pem)?;
    let counts = Roots {
        system,
        own: roots.len() - system,
        unread,
        changed: true,
    };
    let hash = hash.finalize().into();
    Ok((Base { roots, hash, system }, counts))
}

fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), UpstreamFault> {
    for certificate in rustls_pemfile::certs(&mut &pem[..]) {
        let certificate = certificate.map_err(|error| UpstreamFault::Roots(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| UpstreamFault::Roots(error.to_string()))?;
    }
    Ok(())
}
