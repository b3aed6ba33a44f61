//! Requests that are signed for AWS: their client's signature reaches the server still good, or is made anew where it was made
//! with placeholders. botocore signs; a server of ours and moto check (case T06).
use crate::origin::{Origin, Roots};
use crate::python::{moto, python_package, serving};
use crate::stand::{POLICY, Stand};
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::resolve::Resolver;
use sallyport_gateway::secret::Value;
use sallyport_gateway::upstream::Outlet;
use std::path::Path;
use tokio::net::TcpStream;
use tokio::process::Command;

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traffic/aws_peers.py");
const MOTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traffic/aws_moto.py");
const BOTOCORE: (&str, &str) = ("botocore", "1.44.5");
const RESIGNED: &str = r#"
version: 1
name: signed
credentials:
  aws: {from: {store: aws}, hosts: [allowed.test], in: [aws-sigv4], env: AWS}
rules:
  - {id: aws, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, private: true}, use: [aws], effect: allow}
  - {id: store, to: {host: [store.test, 127.0.0.0/8], port: PORT, private: true}, effect: allow}
"#;
/// What the server of ours knows.
const KEYS: [&str; 3] = [
    "AKIDEXAMPLE",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "FwoGZXIvYXdzEBYaDHqa0AP/wZq8Lw2Xv7Rt4+Yb6Nc9Md1Ke==",
];

/// TLS in front of a server on a port of this machine.
async fn origin(roots: &Roots, port: u16) -> Origin {
    Origin::raw(roots, &["http/1.1"], move |mut stream| async move {
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // Either side may leave as it likes.
        let _over = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    })
    .await
}

/// A gateway whose session may use these keys, which stand in its store.
async fn stand_with(roots: &Roots, port: u16, keys: String) -> Stand {
    let outlet = |store: &std::sync::Arc<sallyport_gateway::secret::SecretStore>| {
        store.set("aws", Value::new(keys.into_bytes())).unwrap();
        Outlet::new(Resolver::without_servers())
    };
    let stand = Stand::with_outlet(roots, port, Limits::default(), outlet).await;
    stand.put(RESIGNED);
    stand
}

/// Runs a client behind the gateway; what it said.
async fn asked(stand: &Stand, client: &mut Command, packages: &Path) -> String {
    let ca = stand.folder.path().join("authority.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    let output = client
        .arg(stand.at("allowed.test"))
        .arg(format!("http://run-1:{}@{}", stand.token, stand.proxy))
        .arg(&ca)
        .env("PYTHONPATH", packages)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    format!("{}{}", said.trim(), String::from_utf8_lossy(&output.stderr))
}

/// The variables that the agent has, each with its placeholder.
fn variables(stand: &Stand) -> Vec<(String, String)> {
    let view = stand.sessions.view("run-1", &stand.ca_pem).unwrap();
    let variables = view.credentials.into_iter();
    variables.map(|one| (one.env.unwrap(), one.placeholder)).collect()
}

fn assert_all(records: &[AuditRecord], used: &[&str]) {
    assert!(
        records
            .iter()
            .all(|record| record.verdict == Verdict::Allowed && record.credentials_used == used),
        "{records:#?}"
    );
}

#[tokio::test]
async fn signatures_of_aws_hold_for_uploads_ranges_and_links() {
    let packages = python_package(BOTOCORE.0, BOTOCORE.1).await;
    let (_server, port) = serving(Command::new("python3").args([PEERS, "serve"])).await;
    let roots = Roots::new();
    let origin = origin(&roots, port.parse().unwrap()).await;
    let stand = Stand::new(&roots, origin.port).await;
    // Names of objects may have an encoded slash: a rule that looks at paths would have to say so.
    stand.put(&POLICY.replacen(", path: \"/**\"", "", 1));
    let said = asked(&stand, Command::new("python3").args([PEERS, "ask"]), &packages).await;
    assert_eq!(said, "all signatures held");
    assert_all(&stand.records(6).await, &[]);
}

#[tokio::test]
async fn requests_signed_with_placeholders_by_a_late_clock_are_signed_anew_with_the_keys() {
    let packages = python_package(BOTOCORE.0, BOTOCORE.1).await;
    let mut server = Command::new("python3");
    let (_server, port) = serving(server.args([PEERS, "serve"]).env("SERVER_TOKEN", KEYS[2])).await;
    let roots = Roots::new();
    let origin = origin(&roots, port.parse().unwrap()).await;
    let [id, secret, token] = KEYS;
    let keys = format!(
        "[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\naws_session_token = {token}\n"
    );
    let stand = stand_with(&roots, origin.port, keys).await;
    let variables = variables(&stand);
    let names: Vec<_> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
    );
    assert!(variables.iter().all(|(_, text)| !KEYS.contains(&text.as_str())));
    let mut client = Command::new("python3");
    client
        .args([PEERS, "ask"])
        .envs(variables.clone())
        .env("LATE_HOURS", "30");
    let said = asked(&stand, &mut client, &packages).await;
    assert_eq!(said, "all signatures held");
    let records = stand.records(9).await;
    assert_all(&records, &["aws"]);
    let told = format!("{records:?}");
    assert!(KEYS.iter().all(|key| !told.contains(key)), "{told}");

    // A signature by the placeholders is worth nothing elsewhere, and none of theirs goes there.
    let signed = format!(
        "AWS4-HMAC-SHA256 Credential={}/20261130/eu-test-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature={:064}",
        variables[0].1, 0
    );
    for host in ["allowed.test", "store.test"] {
        let at = stand.at(host);
        let request = format!(
            "GET /bucket/x HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nX-Amz-Date: 20261130T101500Z\r\nAuthorization: {signed}\r\n\r\n"
        );
        let answer = stand.raw(host, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("cannot be made anew"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn the_server_of_moto_takes_what_is_signed_anew() {
    let moto = moto(None).await;
    let told = &moto.told;
    let roots = Roots::new();
    let origin = origin(&roots, u16::try_from(told["port"].as_u64().unwrap()).unwrap()).await;
    let stand = stand_with(&roots, origin.port, told["keys"].to_string()).await;
    let mut client = Command::new("python3");
    client.args([MOTO, "ask"]).envs(variables(&stand));
    let said = asked(&stand, &mut client, &moto.packages).await;
    assert_eq!(said, "all was taken");
    // All but those of a client that signs with other keys.
    let signed = |record: &AuditRecord| record.credentials_used == ["aws"];
    let records = stand.records_until(8, signed).await;
    assert_all(&records, &["aws"]);
    let others = stand
        .records(9)
        .await
        .into_iter()
        .filter(|record| !signed(record));
    assert!(others.into_iter().all(|record| record.status == Some(403)));
}
