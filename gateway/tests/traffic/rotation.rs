//! Values that change while a run lives are taken up without a restart; values that are none are named and not bound.
use crate::origin::{Origin, Roots, full};
use crate::stand::{POLICY, SECRET, Stand};
use http::Response;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const OLD: &str = "ft-Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f";
const NEW: &str = "ft-Zz9yXx8wVv7uTt6sRr5qPp4oNn3mLl2k";

/// Gives back what came as `authorization`, and two values besides, as from a log.
async fn talkative(roots: &Roots) -> Origin {
    Origin::http(roots, &["http/1.1"], |request| async move {
        let sent = request.headers().get("authorization").cloned();
        let sent = sent
            .map(|sent| sent.to_str().unwrap().to_owned())
            .unwrap_or_default();
        Response::new(full(format!("{sent} {OLD} {NEW}")))
    })
    .await
}

async fn get(stand: &Stand, placeholder: &str) -> String {
    let at = stand.at("allowed.test");
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {placeholder}\r\n\r\n"
    );
    stand.raw("allowed.test", &request).await
}

#[tokio::test]
async fn a_secret_file_that_changes_is_taken_up_and_both_values_are_taken_out_of_answers() {
    let roots = Roots::new();
    let origin = talkative(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let files = stand.folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("forge"), format!("{OLD}\n")).unwrap();
    stand.put(&POLICY.replace("{store: token}", "{file: forge}"));
    let shown = || {
        stand.sessions.view("run-1", "").unwrap().credentials[0]
            .placeholder
            .clone()
    };
    let placeholder = shown();
    let stop = CancellationToken::new();
    tokio::spawn(stand.sessions.clone().watch_values(stop.clone()));
    get(&stand, &placeholder).await;
    assert!(origin.seen().pop().unwrap().contains(OLD));
    // As mounts of secrets do it: another file in its place.
    std::fs::write(files.join("next"), NEW).unwrap();
    let began = Instant::now();
    let mut renamed = false;
    loop {
        let answer = get(&stand, &placeholder).await;
        if origin.seen().pop().unwrap().contains(NEW) {
            assert!(!answer.contains(OLD) && !answer.contains(NEW), "{answer}");
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(8));
        if !renamed && began.elapsed() > Duration::from_millis(1200) {
            // It was looked at before, so that this is a change.
            std::fs::rename(files.join("next"), files.join("forge")).unwrap();
            renamed = true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(shown(), placeholder);
    stop.cancel();
}

#[tokio::test]
async fn values_that_are_none_are_named_in_a_warning_and_never_looked_for() {
    let roots = Roots::new();
    let origin = talkative(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let files = stand.folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    for (value, said) in [
        (&b""[..], "shorter than 8 bytes"),
        (b"x", "shorter than 8 bytes"),
        (b"localhost", "a common word"),
        (b"Changeme", "a common word"),
        (b"00000000000", "one sign repeated"),
        (&[0xff; 20], "one sign repeated"),
        (
            &[0xfe, 0xff, 0x00, 0x01, 0xfe, 0xff, 0x00, 0x01, 0x02],
            "is no text",
        ),
        (b"Ab3dEf6h\nIj9lMn0p", "line ends or other control characters"),
    ] {
        std::fs::write(files.join("forge"), value).unwrap();
        stand.put(&POLICY.replace("{store: token}", "{file: forge}"));
        let warnings = stand.sessions.view("run-1", "").unwrap().warnings;
        assert!(
            warnings
                .iter()
                .any(|text| text.contains("`token`") && text.contains(said)),
            "{value:?}: {warnings:?}"
        );
    }
}

#[tokio::test]
async fn the_placeholder_of_another_run_is_only_a_text() {
    let roots = Roots::new();
    let origin = talkative(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put_for("run-2", POLICY);
    let theirs = stand.sessions.view("run-2", "").unwrap().credentials[0]
        .placeholder
        .clone();
    assert_ne!(theirs, stand.placeholder);
    get(&stand, &theirs).await;
    let head = origin.seen().pop().unwrap();
    assert!(head.contains(&theirs) && !head.contains(SECRET), "{head}");
}
