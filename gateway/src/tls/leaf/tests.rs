//! Leaves as clients see them.
use super::*;
use std::collections::HashSet;

fn leaves() -> (tempfile::TempDir, Leaves) {
    let directory = tempfile::tempdir().unwrap();
    let authorities = Arc::new(Authorities::open(directory.path(), &[]).unwrap());
    let leaves = Leaves::new(authorities, Arc::default()).unwrap();
    (directory, leaves)
}

/// A leaf of the current authority.
fn sign(leaves: &Leaves, host: &str) -> Result<CertificateDer<'static>, LeafError> {
    leaves.sign(&Host::parse(host).unwrap(), &leaves.authorities.current())
}

/// What `openssl verify` says of a leaf under the current authority alone, as strictly as it can.
fn verified(leaves: &Leaves, leaf: &CertificateDer<'_>, name: &str) -> String {
    use base64::Engine;
    let folder = tempfile::tempdir().unwrap();
    let (root, file) = (folder.path().join("ca.pem"), folder.path().join("leaf.pem"));
    std::fs::write(&root, leaves.authority_pem()).unwrap();
    let encoded = base64::engine::general_purpose::STANDARD.encode(leaf);
    let lines: Vec<_> = encoded
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    );
    std::fs::write(&file, pem).unwrap();
    let output = std::process::Command::new("openssl")
        .args(["verify", "-x509_strict", "-check_ss_sig", "-purpose", "sslserver"])
        .args(["-verify_hostname", name, "-no-CApath", "-no-CAstore", "-CAfile"])
        .args([&root, &file])
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    String::from_utf8(told).unwrap()
}

#[test]
fn openssl_believes_leaves_as_strictly_as_it_can_also_of_a_constrained_authority() {
    let (_directory, open) = leaves();
    let leaf = sign(&open, "allowed.test").unwrap();
    let told = verified(&open, &leaf, "allowed.test");
    assert!(told.contains("leaf.pem: OK"), "{told}");
    let told = verified(&open, &leaf, "other.test");
    assert!(told.contains("hostname mismatch"), "{told}");
    let directory = tempfile::tempdir().unwrap();
    let permitted = ["corp.test".to_owned()];
    let constrained = Leaves::new(
        Arc::new(Authorities::open(directory.path(), &permitted).unwrap()),
        Arc::default(),
    )
    .unwrap();
    for name in ["corp.test", "git.corp.test"] {
        let leaf = sign(&constrained, name).unwrap();
        let told = verified(&constrained, &leaf, name);
        assert!(told.contains("leaf.pem: OK"), "{told}");
    }
    for host in ["other.test", "evilcorp.test", "192.0.2.7"] {
        let error = sign(&constrained, host).unwrap_err().to_string();
        assert!(
            error.contains("`corp.test`") && error.contains("--ca-permit"),
            "{error}"
        );
    }
    let text = printed(constrained.authorities.current().certificate());
    assert!(text.contains("X509v3 Name Constraints: critical"), "{text}");
}

#[test]
fn a_machine_is_served_by_the_authority_that_it_trusts_after_a_rotation_too() {
    let (directory, leaves) = leaves();
    let first = leaves.authorities.current();
    let host = Host::parse("allowed.test").unwrap();
    let before = leaves.for_host(&host, Some(first.fingerprint())).unwrap();
    super::super::authorities::rotate(directory.path(), &[]).unwrap();
    leaves.authorities.reload().unwrap();
    let after = leaves.for_host(&host, Some(first.fingerprint())).unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    let new = leaves.for_host(&host, None).unwrap();
    assert!(!Arc::ptr_eq(&before, &new));
    let leaf = leaves.sign(&host, &first).unwrap();
    let told = verified(&leaves, &leaf, "allowed.test");
    assert!(
        !told.contains("leaf.pem: OK"),
        "the new root does not vouch for the old one's leaves: {told}"
    );
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
        let text = printed(&sign(&leaves, name).unwrap());
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
    let text = printed(&sign(&leaves, "192.0.2.7").unwrap());
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
        let text = printed(&sign(&leaves, &name).unwrap());
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
            .map(|_| scope.spawn(|| leaves.for_host(&host, None).unwrap()))
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert!(configs.iter().all(|config| Arc::ptr_eq(config, &configs[0])));
}

#[test]
fn a_reloaded_authority_signs_leaves_that_its_first_certificate_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let first = Authority::open(directory.path(), &[]).unwrap();
    let root = first.certificate().clone();
    drop(first);
    let again = Leaves::new(
        Arc::new(Authorities::open(directory.path(), &[]).unwrap()),
        Arc::default(),
    )
    .unwrap();
    let leaf = sign(&again, "allowed.test").unwrap();
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

#[test]
fn leaves_of_those_who_did_not_say_who_they_are_stay_few_and_push_out_none_of_a_sessions() {
    let (_directory, leaves) = leaves();
    let host = Host::parse("allowed.test").unwrap();
    let kept = leaves.for_host(&host, None).unwrap();
    for number in 0..STRANGERS_HELD + 100 {
        let name = Host::parse(&format!("fresh-{number}.test")).unwrap();
        leaves.for_stranger(&name).unwrap();
    }
    leaves.strangers.run_pending_tasks();
    leaves.cache.run_pending_tasks();
    assert!(leaves.strangers.entry_count() <= STRANGERS_HELD);
    assert_eq!(leaves.cache.entry_count(), 1);
    assert!(Arc::ptr_eq(&kept, &leaves.for_host(&host, None).unwrap()));
}
