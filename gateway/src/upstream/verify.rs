//! The check of upstream certificates, as rustls does it, with the issuer named where it is not trusted.
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use std::sync::Arc;
use x509_parser::parse_x509_certificate;

/// Longest name of an issuer that is told.
const NAME: usize = 200;

/// Whose certificate it is that nobody trusted here has issued.
#[derive(Debug, thiserror::Error)]
enum Untrusted {
    #[error(
        "it is self-signed and not among the trusted ones; the session or the gateway (`--upstream-ca`) may trust it"
    )]
    SelfSigned,
    #[error(
        "its issuer `{0}` is not trusted; the session or the gateway (`--upstream-ca`) may trust it, or the upstream leaves out an \
         intermediate certificate"
    )]
    Issuer(String),
}

/// Checks by rustls alone; only the words of a refusal are its own.
#[derive(Debug)]
pub(super) struct Verifier(Arc<WebPkiServerVerifier>);

impl Verifier {
    /// With these authorities. An error where there are none, or none that can be used.
    pub(super) fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| named(error, end_entity))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.0.root_hint_subjects()
    }
}

/// Says who issued what nobody here trusts. A self-signed certificate that calls itself an authority fails earlier, as one.
fn named(error: Error, end_entity: &CertificateDer<'_>) -> Error {
    let Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)) = &error
    else {
        return error;
    };
    let Ok((_, certificate)) = parse_x509_certificate(end_entity) else {
        return error;
    };
    let why = if certificate.issuer().as_raw() == certificate.subject().as_raw() {
        Untrusted::SelfSigned
    } else if matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer)) {
        let issuer = certificate.issuer().to_string();
        Untrusted::Issuer(
            issuer
                .chars()
                .filter(|letter| !letter.is_control())
                .take(NAME)
                .collect(),
        )
    } else {
        return error;
    };
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}
