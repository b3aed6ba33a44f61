//! Tests of what is written into a machine, below a folder that stands in for its root.
use super::{install, link_by_hash, trust_variables};
use std::fs;

const CA: &str = "-----BEGIN CERTIFICATE-----\nZ2F0ZXdheQ==\n-----END CERTIFICATE-----\n";
const ROOT: &str = "-----BEGIN CERTIFICATE-----\ncm9vdA==\n-----END CERTIFICATE-----\n";

fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("etc/ssl/certs")).unwrap();
    fs::write(root.path().join("etc/ssl/certs/ca-certificates.crt"), ROOT).unwrap();
    root
}

#[test]
fn the_system_store_and_the_bundle_hold_the_roots_and_the_authority() {
    let root = machine();
    assert_eq!(install(root.path(), CA, &trust_variables()), Vec::<String>::new());
    for path in ["etc/ssl/gw/bundle.pem", "etc/ssl/certs/ca-certificates.crt"] {
        let content = fs::read_to_string(root.path().join(path)).unwrap();
        assert!(
            content.contains("cm9vdA==") && content.contains("Z2F0ZXdheQ=="),
            "{path}"
        );
    }
    assert_eq!(
        fs::read_to_string(root.path().join("etc/ssl/gw/ca.pem")).unwrap(),
        CA
    );
    assert!(
        fs::read_to_string(root.path().join("etc/wgetrc"))
            .unwrap()
            .contains("bundle.pem")
    );
    let browser =
        fs::read_to_string(root.path().join("etc/chromium/policies/managed/sallyport.json")).unwrap();
    assert!(
        browser.contains(r#""CACertificates":["Z2F0ZXdheQ=="]"#),
        "{browser}"
    );
    let profile = fs::read_to_string(root.path().join("etc/profile.d/zz-sallyport.sh")).unwrap();
    assert!(profile.contains("export GIT_SSL_CAINFO='/etc/ssl/gw/bundle.pem'"));
}

#[test]
fn a_second_setup_with_another_authority_replaces_the_first() {
    let root = machine();
    install(root.path(), CA, &trust_variables());
    install(root.path(), &CA.replace("Z2F0", "bmV3"), &trust_variables());
    let store = fs::read_to_string(root.path().join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(!store.contains("Z2F0") && store.contains("bmV3"));
    assert_eq!(store.matches("BEGIN CERTIFICATE").count(), 2);
    let wgetrc = fs::read_to_string(root.path().join("etc/wgetrc")).unwrap();
    assert_eq!(wgetrc.matches("ca_certificate").count(), 1);
}

#[test]
fn what_cannot_be_done_is_told() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    fs::write(root.path().join("etc/ssl"), "a file where a folder should be").unwrap();
    let warnings = install(root.path(), "no certificate", &trust_variables());
    assert!(warnings.iter().any(|w| w.contains("not a PEM certificate")));
    assert!(warnings.iter().any(|w| w.contains("no roots of its own")));
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("`/etc/ssl/gw/ca.pem` could not be written"))
    );
}

#[test]
fn the_hash_link_is_made_once_and_beside_a_taken_name() {
    let root = machine();
    let certs = root.path().join("etc/ssl/certs");
    fs::write(certs.join("abcd.0"), "another").unwrap();
    link_by_hash(root.path(), "abcd").unwrap();
    link_by_hash(root.path(), "abcd").unwrap();
    assert!(certs.join("abcd.1").symlink_metadata().is_ok());
    assert!(certs.join("abcd.2").symlink_metadata().is_err());
}
