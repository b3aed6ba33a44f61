//! Whether a host is the one that the policy knows.
use russh::keys::{Algorithm, HashAlg, PublicKey};
use sallyport_policy::{Destination, KnownHost};

/// The keys of one host, as the policy has them.
#[derive(Debug, Clone)]
pub(super) struct Known {
    host: String,
    keys: Vec<PublicKey>,
}

impl Known {
    /// What the policy says of a host; the error tells how to make it known.
    pub(super) fn of(list: &[KnownHost], destination: &Destination) -> Result<Self, String> {
        let host = match destination.port {
            22 => destination.host.to_string(),
            port => format!("[{}]:{port}", destination.host),
        };
        let keys: Vec<PublicKey> = list
            .iter()
            .filter(|known| known.names(destination))
            .filter_map(|known| PublicKey::from_openssh(known.key()).ok())
            .collect();
        if keys.is_empty() {
            return Err(format!(
                "the policy knows no key of `{host}`, so that another host could stand in for it; who keeps the policy can add \
                 a line for it to `known-hosts`"
            ));
        }
        Ok(Self { host, keys })
    }

    /// Kinds of keys to ask the host for: those by which it can be known.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        let mut kinds = Vec::new();
        for key in &self.keys {
            if !kinds.contains(&key.algorithm()) {
                kinds.push(key.algorithm());
            }
        }
        kinds
    }

    /// Whether this is a key of the host; the error says which it showed, and which it should have.
    pub(super) fn check(&self, shown: &PublicKey) -> Result<(), String> {
        if self.keys.iter().any(|key| key.key_data() == shown.key_data()) {
            return Ok(());
        }
        let known: Vec<String> = self
            .keys
            .iter()
            .map(|key| format!("`{}`", key.fingerprint(HashAlg::Sha256)))
            .collect();
        Err(format!(
            "`{}` showed the key `{}`, and the policy knows {}: this may be another host that stands in for it",
            self.host,
            shown.fingerprint(HashAlg::Sha256),
            known.join(", ")
        ))
    }
}
