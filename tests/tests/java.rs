//! Java's own HTTP client against a leaf of the gateway, with the store that machines trust (cases T01, T05).
#![expect(clippy::print_stderr, reason = "a test that cannot begin says so")]
use sallyport_harness::{Stage, Way};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const POLICY: &str = "version: 1\nname: java\ndefault: deny\nrules:\n  - {id: files, to: {host: [allowed.test, 127.0.0.0/8], port: 8443, \
                      methods: [GET], path: \"/files/**\", private: true}, effect: allow}\n";

/// Whether there is a Java that compiles what it is given. The JDK is large, so that nobody has to have it for these tests: that
/// leaves are taken by clients of HTTP/2 which are strict about them is shown by git-lfs (Go), grpcio and Node too.
fn is_here() -> bool {
    let modules = Command::new("java").arg("--list-modules").output();
    modules.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("jdk.compiler"))
}

#[test]
fn java_trusts_a_machines_store_and_speaks_http2_with_the_gateway() {
    if !is_here() {
        return eprintln!("skipped: no `java` with `jdk.compiler` is installed");
    }
    let stage = Stage::new().unwrap();
    let files = stage.path("home/files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("hello.txt"), "hello from outside\n").unwrap();
    let way = Way::open(stage, &["--files", files.to_str().unwrap()], POLICY).unwrap();
    // As the shim lays it into a machine.
    let machine = way.stage.path("home/machine");
    std::fs::create_dir(&machine).unwrap();
    let warnings = sallyport_shim::trust::install(&machine, &way.view.ca_pem, &BTreeMap::new());
    let store = machine.join("etc/ssl/gw/truststore.jks");
    assert!(store.exists(), "{warnings:?}");
    let (host, port) = way.proxy.split_once(':').unwrap();
    let output = Command::new("java")
        .arg(format!("-Djavax.net.ssl.trustStore={}", store.display()))
        // Basic for CONNECT is off in Java, unless one asks for it.
        .arg("-Djdk.http.auth.tunneling.disabledSchemes=")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/Ask.java"))
        .args([host, port, "run-1", &way.view.proxy_token])
        .args([
            "https://allowed.test:8443/files/hello.txt",
            "https://allowed.test:8443/other",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    let mut lines = said.lines();
    assert_eq!(
        lines.next(),
        Some("HTTP_2 200 hello from outside"),
        "{said}{complaint}"
    );
    let refused = lines.next().unwrap_or_default();
    assert!(
        refused.starts_with("HTTP_2 403 ") && refused.contains("\"decision\""),
        "{said}{complaint}"
    );
}
