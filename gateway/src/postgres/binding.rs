//! PURE: what binds a SCRAM log-in to the TLS connection that it is made on: the hash of the server's certificate (RFC 5929 section 4).
use aws_lc_rs::digest::{self, Algorithm, SHA256, SHA384, SHA512};
use x509_parser::parse_x509_certificate;

/// Signature algorithms by their object identifier, and the hash that each uses (RFC 4055, RFC 5758).
const HASHES: [(&str, &Algorithm); 6] = [
    ("1.2.840.113549.1.1.11", &SHA256),
    ("1.2.840.113549.1.1.12", &SHA384),
    ("1.2.840.113549.1.1.13", &SHA512),
    ("1.2.840.10045.4.3.2", &SHA256),
    ("1.2.840.10045.4.3.3", &SHA384),
    ("1.2.840.10045.4.3.4", &SHA512),
];

/// `tls-server-end-point` of a certificate in DER. None where its signature names no one hash, as that of Ed25519: servers offer
/// no binding then.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let signed_with = parsed.signature_algorithm.algorithm.to_id_string();
    let (_, hash) = HASHES.iter().find(|(identifier, _)| *identifier == signed_with)?;
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    fn certificate(signature: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(signature).unwrap();
        let params = CertificateParams::new(vec!["db.test".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let short = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(
            end_point(&short).unwrap(),
            digest::digest(&SHA256, &short).as_ref()
        );
        let long = certificate(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(end_point(&long).unwrap(), digest::digest(&SHA384, &long).as_ref());
    }

    #[test]
    fn a_certificate_without_one_hash_binds_nothing() {
        assert_eq!(end_point(&certificate(&rcgen::PKCS_ED25519)), None);
        assert_eq!(end_point(b"none"), None);
    }
}
