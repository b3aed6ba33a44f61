//! The process's one provider of cryptography, and the order in which it offers and chooses cipher suites.
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedCipherSuite};
use std::sync::{Arc, LazyLock};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ordered()));

/// aws-lc-rs with AES-128 first: its key schedule runs on SHA-256, which processors compute themselves, where that of AES-256
/// runs on SHA-384, and a proxy shakes hands twice for each connection. All suites stay on offer.
pub fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}

/// Makes it the process's. A second call changes nothing.
pub fn install() {
    // The error says that one is installed already, which is what is wanted.
    let _installed = ordered().install_default();
}

fn ordered() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(rank);
    provider
}

/// Stable, so that suites of one rank stay in the library's order.
fn rank(suite: &SupportedCipherSuite) -> u8 {
    match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384 | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 1,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_suite_is_lost_and_those_of_tls_1_3_stand_first() {
        let provider = provider();
        let suites = &provider.cipher_suites;
        assert_eq!(suites.len(), aws_lc_rs::default_provider().cipher_suites.len());
        assert_eq!(suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        let newest = suites.iter().take_while(|suite| suite.tls13().is_some()).count();
        assert_eq!(
            newest,
            suites.iter().filter(|suite| suite.tls13().is_some()).count()
        );
    }
}
