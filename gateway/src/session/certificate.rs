//! Which certificates are good for a session: what its machine shows at the tunnel.
use super::check::shown;
pub use super::keep::Certificate;
use super::keep::{Kept, StateError};
use super::registry::SessionError;
use super::{Session, Sessions};
use jiff::Timestamp;
use std::sync::Arc;

/// The newest, and the one before it, so that a machine can change over while it works.
const GOOD: usize = 2;

/// Why a certificate that the authority signed opens no tunnel. The machine's supervisor can ask for another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// Its session is closed.
    #[error("the certificate is of a session that is not open here, or not any more")]
    Closed,
    /// The session has newer ones, or was opened anew since.
    #[error("the certificate is not one of the newest that were given to session `{0}`; ask for a new one")]
    Replaced(String),
    /// Its time is over.
    #[error("the certificate of session `{0}` has ended; ask for a new one")]
    Expired(String),
}

impl Sessions {
    /// Makes a certificate good for a session. On disk when it returns; blocks for some milliseconds.
    pub fn certify(&self, id: &str, certificate: Certificate) -> Result<(), SessionError> {
        let _changing = self.changing();
        let session = self.by_id(id).ok_or_else(|| SessionError::Unknown(shown(id)))?;
        Ok(session.add_certificate(certificate)?)
    }

    /// The session whose machine shows this certificate, which the authority was found to have signed.
    pub fn by_certificate(&self, id: &str, fingerprint: &str) -> Result<Found, CertificateFault> {
        let session = self.by_id(id).ok_or(CertificateFault::Closed)?;
        let certificate = session
            .kept()
            .certificates
            .iter()
            .find(|certificate| certificate.fingerprint == fingerprint)
            .cloned()
            .ok_or_else(|| CertificateFault::Replaced(shown(id)))?;
        if certificate.expires_at <= Timestamp::now() {
            return Err(CertificateFault::Expired(shown(id)));
        }
        Ok(Found {
            session,
            expires_at: certificate.expires_at,
        })
    }
}

/// Who shows a certificate.
#[derive(Debug)]
pub struct Found {
    /// Whose machine.
    pub session: Arc<Session>,
    /// When the certificate ends.
    pub expires_at: Timestamp,
}

impl Session {
    fn add_certificate(&self, certificate: Certificate) -> Result<(), StateError> {
        let mut kept = self.kept();
        let mut certificates = kept.certificates.clone();
        certificates.push(certificate);
        let old = certificates.len().saturating_sub(GOOD);
        certificates.drain(..old);
        let new = Kept {
            certificates,
            ..kept.clone()
        };
        self.keeper.save(&self.id, &new)?;
        *kept = new;
        Ok(())
    }
}
