//! A Java key store with certificates alone, in the format `JKS`: what every JDK reads, of any age. Pure.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

/// Where the store lies.
pub(super) const STORE_FILE: &str = "/etc/ssl/gw/truststore.jks";
/// The password of every Java trust store; it keeps nothing secret.
const PASSWORD: &str = "changeit";
const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const TRUSTED: u32 = 2;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The store of all certificates in `pem`, dated `unix_ms`.
pub(super) fn store(pem: &str, unix_ms: i64) -> Vec<u8> {
    let certificates = certificates(pem);
    let mut all = Vec::new();
    all.extend_from_slice(&MAGIC.to_be_bytes());
    all.extend_from_slice(&VERSION.to_be_bytes());
    all.extend_from_slice(&length(certificates.len()));
    for (index, der) in certificates.iter().enumerate() {
        all.extend_from_slice(&TRUSTED.to_be_bytes());
        text(&mut all, &format!("root-{index}"));
        all.extend_from_slice(&unix_ms.to_be_bytes());
        text(&mut all, "X.509");
        all.extend_from_slice(&length(der.len()));
        all.extend_from_slice(der);
    }
    let mut digest = Sha1::new();
    for unit in PASSWORD.encode_utf16() {
        digest.update(unit.to_be_bytes());
    }
    digest.update(b"Mighty Aphrodite");
    digest.update(&all);
    all.extend_from_slice(&digest.finalize());
    all
}

/// The DER of each certificate; what is not base64 is left out, as every reader of such a file does.
fn certificates(pem: &str) -> Vec<Vec<u8>> {
    let blocks = pem.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    let text = blocks.map(|(block, _)| block.split_whitespace().collect::<String>());
    text.filter_map(|text| STANDARD.decode(text).ok()).collect()
}

fn text(to: &mut Vec<u8>, text: &str) {
    let bytes = u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
    to.extend_from_slice(&bytes);
    to.extend_from_slice(text.as_bytes());
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::store;
    use std::process::Command;

    #[test]
    fn certificates_are_counted_and_nonsense_is_left_out() {
        let pem = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n\
            -----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\ncut";
        let store = store(pem, 0);
        assert_eq!(store[..12], [0xFE, 0xED, 0xFE, 0xED, 0, 0, 0, 2, 0, 0, 0, 1]);
        assert_eq!(store.len(), 12 + 4 + 8 + 8 + 7 + 4 + 3 + 20);
    }

    /// Only where there is a JDK; elsewhere the shape alone is tested.
    #[test]
    fn the_jdk_reads_the_store() {
        let Ok(roots) = std::fs::read_to_string("/etc/ssl/certs/ca-certificates.crt") else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.jks");
        std::fs::write(&path, store(&roots, 0)).unwrap();
        let mut keytool = Command::new("keytool");
        keytool
            .args(["-list", "-storepass", "changeit", "-keystore"])
            .arg(&path);
        let Ok(out) = keytool.output() else { return };
        let told = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{told}");
        let count = roots.matches("BEGIN CERTIFICATE").count();
        assert!(told.contains(&format!("contains {count} entries")), "{told}");
    }
}
