//! Requests that their client signed reach their server with the signature still good: botocore signs, the server checks (case T06).
use crate::origin::{Origin, Roots};
use crate::python::python_package;
use crate::stand::{POLICY, Stand};
use sallyport_gateway::control::types::Verdict;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traffic/aws_peers.py");

#[tokio::test]
async fn signatures_of_aws_hold_for_uploads_ranges_and_links() {
    let packages = python_package("botocore", "1.44.5").await;
    let mut server = Command::new("python3")
        .args([PEERS, "serve"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port: u16 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    let roots = Roots::new();
    let origin = Origin::raw(&roots, &["http/1.1"], move |mut stream| async move {
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // Either side may leave as it likes.
        let _over = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    // Names of objects may have an encoded slash: a rule that looks at paths would have to say so.
    stand.put(&POLICY.replacen(", path: \"/**\"", "", 1));
    let ca = stand.folder.path().join("authority.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    let output = Command::new("python3")
        .args([PEERS, "ask", &stand.at("allowed.test")])
        .arg(format!("http://run-1:{}@{}", stand.token, stand.proxy))
        .arg(&ca)
        .env("PYTHONPATH", packages)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        said.trim(),
        "all signatures held",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let records = stand.records(6).await;
    assert!(
        records.iter().all(|record| record.verdict == Verdict::Allowed),
        "{records:#?}"
    );
}
