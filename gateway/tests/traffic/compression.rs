//! Compressed WebSocket messages between two ends of an independent library (case P12): equal, but for the value in one.
use crate::origin::Roots;
use crate::stand::{POLICY, SECRET, Stand, authorization};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// 200 messages take this long at most.
const LONG: Duration = Duration::from_secs(60);

/// The `ws` package of npm, installed once.
async fn ws_package() -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("npm-ws");
    std::fs::create_dir_all(&folder).unwrap();
    if !folder.join("node_modules/ws/package.json").exists() {
        let installed = tokio::process::Command::new("npm")
            .args([
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--no-save",
                "--prefix",
            ])
            .arg(&folder)
            .arg("ws@8.18.3")
            .output()
            .await
            .unwrap();
        assert!(installed.status.success(), "{installed:?}");
    }
    folder.join("node_modules")
}

/// 100 messages each way between two ends that compress on these terms; what they agreed on.
async fn exchanged(options: serde_json::Value, bound: bool) -> String {
    let mut peers = tokio::process::Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traffic/peers.cjs"))
        .arg(options.to_string())
        .env("NODE_PATH", ws_package().await)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(peers.stdout.take().unwrap()).lines();
    let port = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    let stand = Stand::new(&Roots::new(), port).await;
    // A session goes on looking for what it once had: only one that never had credentials has none to look for.
    let bare = format!(
        "version: 1\nname: bare\n{}",
        POLICY[POLICY.find("rules:").unwrap()..].replace("    use: [token]\n", "")
    );
    stand.put_for("bare", &bare);
    let of_bare = stand.sessions.view("bare", &stand.ca_pem).unwrap().proxy_token;
    let told = serde_json::json!({
        "proxy": {"host": "127.0.0.1", "port": stand.proxy.port()},
        "authorization": if bound { stand.authorization() } else { authorization("bare", &of_bare) },
        "at": stand.at("allowed.test"),
        "sent": SECRET,
        "placeholder": stand.placeholder,
        "expected": if bound { &stand.placeholder } else { SECRET },
    });
    let mut input = peers.stdin.take().unwrap();
    input.write_all(format!("{told}\n").as_bytes()).await.unwrap();
    let last = tokio::time::timeout(LONG, lines.next_line()).await.unwrap();
    let last = last.unwrap().unwrap();
    let records = stand.records(2).await;
    assert_eq!(records[1].ending, "complete", "{last} {records:#?}");
    assert_eq!(
        records[1].credentials_redacted.len(),
        usize::from(bound),
        "{records:#?}"
    );
    last
}

#[tokio::test]
async fn compressed_messages_arrive_equal_but_for_the_value_in_one() {
    let all = serde_json::json!({"threshold": 0});
    let fresh =
        serde_json::json!({"threshold": 0, "serverNoContextTakeover": true, "clientNoContextTakeover": true});
    let small = serde_json::json!({"threshold": 0, "clientMaxWindowBits": 10});
    let tiny = serde_json::json!({"threshold": 0, "serverMaxWindowBits": 9});
    for (server, agreed) in [
        (all.clone(), "permessage-deflate"),
        (fresh, "no_context_takeover"),
        (small, "client_max_window_bits=10"),
        (tiny, "server_max_window_bits=9"),
        (serde_json::json!(false), "extensions: none"),
    ] {
        let last = exchanged(serde_json::json!({"client": all, "server": server}), true).await;
        assert!(
            last.starts_with("closed with 1000") && last.contains(agreed),
            "{agreed}: {last}"
        );
    }
    // Without credentials there is nothing to look for, and they pass as they are.
    let last = exchanged(serde_json::json!({"client": all, "server": all}), false).await;
    assert!(
        last.starts_with("closed with 1000, extensions: permessage-deflate"),
        "{last}"
    );
}
