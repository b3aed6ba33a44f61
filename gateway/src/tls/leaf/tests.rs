//! Leaves as clients see them.
use super::*;
use std::collections::HashSet;

fn leaves() -> (tempfile::TempDir, Leaves) {
    let directory = tempfile::tempdir().unwrap();
    let authority = Arc::new(Authority::open(directory.path()).unwrap());
    let leaves = Leaves::new(authority, Arc::default()).unwrap();
    (directory, leaves)
}

/// The text of `openssl x509`, a reader that is not ours.
fn printed(leaf: &CertificateDer<'_>) -> String {
    use std::io::Write;
    let mut child = std::process::Command::new("openssl")
        .args(["x509", "-inform", "DER", "-noout", "-text", "-nameopt", "RFC2253"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(leaf).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_leaf_names_exactly_what_was_dialled() {
    let (_directory, leaves) = leaves();
    for name in ["allowed.test", "a_b.test", "xn--bcher-kva.test"] {
        let text = printed(&leaves.sign(&Host::parse(name).unwrap()).unwrap());
        assert!(
            text.contains(&format!(
                "X509v3 Subject Alternative Name: critical\n                DNS:{name}\n"
            )),
            "{text}"
        );
        assert!(
            text.contains("Subject: \n") || text.contains("Subject:\n"),
            "{text}"
        );
        assert!(text.contains("X509v3 Authority Key Identifier"), "{text}");
        assert!(text.contains("TLS Web Server Authentication"), "{text}");
    }
    let text = printed(&leaves.sign(&Host::parse("192.0.2.7").unwrap()).unwrap());
    assert!(text.contains("IP Address:192.0.2.7"), "{text}");
}

#[test]
fn names_beyond_a_common_name_are_good_names() {
    let (_directory, leaves) = leaves();
    let long = format!(
        "{}.test",
        ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60)].join(".")
    );
    for name in [format!("{}.test", ["x"; 35].join("y.")), long] {
        assert!(name.len() > 64);
        let text = printed(&leaves.sign(&Host::parse(&name).unwrap()).unwrap());
        assert!(text.contains(&name), "{text}");
    }
}

#[test]
fn serials_are_long_and_never_repeat() {
    let serials: HashSet<Vec<u8>> = (0..200).map(|_| random_serial().unwrap().to_bytes()).collect();
    assert_eq!(serials.len(), 200);
    assert!(
        serials
            .iter()
            .all(|serial| serial.len() == 16 && serial[0] & 0x80 == 0)
    );
}

#[test]
fn one_leaf_is_made_for_a_name_under_concurrency() {
    let (_directory, leaves) = leaves();
    let host = Host::parse("allowed.test").unwrap();
    let configs: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| leaves.for_host(&host).unwrap()))
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert!(configs.iter().all(|config| Arc::ptr_eq(config, &configs[0])));
}

#[test]
fn a_reloaded_authority_signs_leaves_that_its_first_certificate_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let first = Authority::open(directory.path()).unwrap();
    let root = first.certificate().clone();
    drop(first);
    let again = Leaves::new(
        Arc::new(Authority::open(directory.path()).unwrap()),
        Arc::default(),
    )
    .unwrap();
    let leaf = again.sign(&Host::parse("allowed.test").unwrap()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root).unwrap();
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), again.provider.clone())
            .build()
            .unwrap();
    let name = rustls::pki_types::ServerName::try_from("allowed.test").unwrap();
    use rustls::client::danger::ServerCertVerifier;
    verifier
        .verify_server_cert(&leaf, &[], &name, &[], rustls::pki_types::UnixTime::now())
        .unwrap();
}
