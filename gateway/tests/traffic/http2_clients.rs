//! HTTP/2 as nghttp2's clients speak it: many streams of one connection, uploads, padding and small windows.
use crate::origin::{Origin, Roots};
use crate::stand::Stand;
use crate::ways::plain_origin;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Whoever connects here is in a tunnel to `allowed.test`: these clients know no proxies.
async fn entrance(stand: &Arc<Stand>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stand = stand.clone();
    let task = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let stand = stand.clone();
            tokio::spawn(async move {
                let mut tunnel = stand.tunnel(&stand.at("allowed.test")).await;
                // Either side may leave first.
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut tunnel).await;
            });
        }
    });
    (address, task)
}

async fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// How many frames of a kind came, as `nghttp -v` tells.
fn received(text: &str, what: &str) -> usize {
    text.matches(&format!("recv {what}")).count()
}

#[tokio::test]
async fn nghttp_sends_and_gets_bodies_on_streams_at_once() {
    let roots = Roots::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, vec![b'x'; 300_000]).unwrap();
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let origin = Origin::echo(&roots, alpn).await;
        let stand = Arc::new(Stand::new(&roots, origin.port).await);
        let (address, entrance) = entrance(&stand).await;
        let authority = format!(":authority: {}", stand.at("allowed.test"));
        // A window of 1023 bytes for each stream, padded frames, and the body's length kept to itself.
        let text = said(
            "nghttp",
            &[
                "-v",
                "-n",
                "-y",
                "-w10",
                "-b64",
                "-m5",
                "--no-content-length",
                "-d",
                file.to_str().unwrap(),
                "-H",
                &authority,
                &format!("https://{address}/echo"),
            ],
        )
        .await;
        assert_eq!(text.matches(":status: 200").count(), 5, "{text}");
        assert_eq!(
            (received(&text, "RST_STREAM"), received(&text, "GOAWAY")),
            (0, 0),
            "{text}"
        );
        let heads = origin.seen();
        assert!(heads.iter().all(|head| head.starts_with("POST")), "{heads:?}");
        let mut records = stand.records(10).await;
        records.retain(|record| record.ending != "open");
        let whole = records.iter().filter(|record| record.ending == "complete");
        assert_eq!(
            whole.map(|record| record.bytes_in).collect::<Vec<_>>(),
            [300_000; 5],
            "{records:#?}"
        );
        entrance.abort();
    }
}

#[tokio::test]
async fn h2load_is_served_whole_inside_a_tunnel_and_at_the_proxy() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Arc::new(Stand::new(&roots, origin.port).await);
    let (address, entrance) = entrance(&stand).await;
    let authority = format!(":authority: {}", stand.at("allowed.test"));
    let many = ["-n200", "-c4", "-m16"];
    let inside = format!("https://{address}/");
    let text = said("h2load", &[&many[..], &["-H", &authority, &inside]].concat()).await;
    assert!(
        text.contains("200 succeeded, 0 failed, 0 errored") && text.contains("200 2xx"),
        "{text}"
    );
    entrance.abort();
    let (port, _plain) = plain_origin().await;
    let stand = Stand::new(&roots, port).await;
    let authority = format!(":authority: {}", stand.at("allowed.test"));
    let known = format!("proxy-authorization: {}", stand.authorization());
    let proxy = format!("http://{}/", stand.proxy);
    let text = said(
        "h2load",
        &[&many[..], &["-H", &authority, "-H", &known, &proxy]].concat(),
    )
    .await;
    assert!(
        text.contains("200 succeeded, 0 failed, 0 errored") && text.contains("200 2xx"),
        "{text}"
    );
}
