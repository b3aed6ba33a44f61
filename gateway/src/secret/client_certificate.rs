//! Client certificates: chain and key of a credential are read here, and what leaves can sign and no more.
use super::{SessionSecrets, Value};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sallyport_policy::{Permit, Place};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// A client certificate that TLS can answer with.
pub struct Identity {
    credential: String,
    version: [u8; 32],
    resolver: Arc<SingleCertAndKey>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Name of the credential in the policy.
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// SHA-256 of the certificate, which everybody may see: another one is another identity.
    pub fn version(&self) -> [u8; 32] {
        self.version
    }

    /// Answers a server's request for a certificate.
    pub fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        self.resolver.clone()
    }

    /// Reads PEM: the certificate first, then those above it, and its key anywhere.
    fn load(credential: &str, value: &Value) -> Result<Self, String> {
        let chain = rustls_pemfile::certs(&mut value.bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| "its certificates are no PEM".to_owned())?;
        let first = chain
            .first()
            .ok_or("it holds no certificate: its value is the certificate and its key, both in PEM")?;
        let version = Sha256::digest(first).into();
        let key = key(value)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => "its key is not that of its certificate".to_owned(),
            // Other errors of the library name no bytes, but might one day.
            _ => "its certificate or its key cannot be used by TLS".to_owned(),
        })?;
        Ok(Self {
            credential: credential.to_owned(),
            version,
            resolver: Arc::new(SingleCertAndKey::from(certified)),
        })
    }
}

fn key(value: &Value) -> Result<PrivateKeyDer<'static>, String> {
    match rustls_pemfile::private_key(&mut value.bytes()) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Err("it holds no private key, or one that is locked with a pass phrase".to_owned()),
        Err(_) => Err("its private key is no PEM".to_owned()),
    }
}

/// What became of one credential with the place `client-certificate`.
pub(super) struct Loaded {
    credential: String,
    identity: Result<Arc<Identity>, String>,
}

/// Reads every client certificate among bindings: by name, places and value.
pub(super) fn load<'a>(
    bindings: impl Iterator<Item = (&'a str, &'a [Place], Option<&'a Value>)>,
) -> Vec<Loaded> {
    bindings
        .filter(|(_, places, _)| places.contains(&Place::ClientCertificate))
        .map(|(name, _, value)| Loaded {
            credential: name.to_owned(),
            identity: match value {
                Some(value) => Identity::load(name, value).map(Arc::new),
                None => Err("it has no value".to_owned()),
            },
        })
        .collect()
}

impl SessionSecrets {
    /// The client certificate that a permit carries: the first in the policy's order. An error where it cannot be used.
    pub fn identity(&self, permit: &Permit) -> Result<Option<Arc<Identity>>, String> {
        let carried = self
            .identities
            .iter()
            .find(|loaded| permit.carries(&loaded.credential));
        carried
            .map(|loaded| {
                loaded.identity.clone().map_err(|why| {
                    format!(
                        "the client certificate of credential `{}` cannot be used: {why}",
                        loaded.credential
                    )
                })
            })
            .transpose()
    }

    /// Client certificates that cannot be used: the credential, and why.
    pub fn identity_faults(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identities.iter().filter_map(|loaded| {
            let why = loaded.identity.as_ref().err()?;
            Some((loaded.credential.as_str(), why.as_str()))
        })
    }
}
