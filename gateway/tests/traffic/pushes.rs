//! Pushes decided by what they change, and refused in words that git prints (case T03).
use crate::git::Forge;
use crate::stand::{SECRET, ask};
use flate2::{Compression, write::GzEncoder};
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use tokio::io::AsyncWriteExt;

const BOTH: &[&str] = &["h2", "http/1.1"];

/// The records of pushes themselves.
async fn pushes(forge: &Forge) -> Vec<AuditRecord> {
    let records = forge.stand.records(1).await;
    let is_push = |record: &AuditRecord| record.method.as_deref() == Some("POST");
    records.into_iter().filter(is_push).collect()
}

#[tokio::test]
async fn what_a_rule_lets_a_push_change_arrives_whole() {
    for (version, alpn) in [("HTTP/1.1", BOTH), ("HTTP/2", BOTH), ("HTTP/2", &["http/1.1"])] {
        let forge = Forge::new(alpn).await;
        let version = format!("http.version={version}");
        let push = async |arguments: &[&str]| {
            forge
                .in_work(&[&["-c", &version, "push", "origin"], arguments].concat())
                .await;
        };
        push(&["HEAD:refs/heads/agent/one"]).await;
        assert_eq!(
            forge.at_forge("refs/heads/agent/one").await,
            forge.here("HEAD").await
        );
        for number in 0..5 {
            forge.commit("more", format!("{number}\n").as_bytes()).await;
        }
        push(&["HEAD:refs/heads/agent/one"]).await;
        forge.in_work(&["checkout", "-q", "-b", "side", "HEAD~2"]).await;
        forge.commit("side", b"side\n").await;
        forge.in_work(&["merge", "-q", "-m", "Merge", "main"]).await;
        push(&["HEAD:refs/heads/agent/one"]).await;
        assert_eq!(
            forge.at_forge("refs/heads/agent/one").await,
            forge.here("HEAD").await
        );
        forge.in_work(&["tag", "-a", "-m", "One", "v1"]).await;
        push(&["v1"]).await;
        assert_eq!(forge.at_forge("refs/tags/v1").await, forge.here("v1").await);
        let records = pushes(&forge).await;
        assert!(
            records
                .iter()
                .all(|record| record.rule == "push" && record.verdict == Verdict::Allowed)
        );
        assert_eq!(records[0].path.as_deref(), Some("/acme/web.git/git-receive-pack"));
        let reasons: Vec<_> = records.iter().map(|record| record.reason.as_str()).collect();
        assert!(
            reasons
                .iter()
                .any(|reason| reason.contains("`refs/heads/agent/one` moved forward")),
            "{reasons:?}"
        );
    }
}

#[tokio::test]
async fn a_refused_push_fails_and_git_prints_why() {
    for version in ["HTTP/1.1", "HTTP/2"] {
        let forge = Forge::new(BOTH).await;
        let before = forge.at_forge("main").await;
        forge.commit("more", b"more\n").await;
        forge.in_work(&["config", "http.version", version]).await;
        let said = forge
            .refused(&["origin", "HEAD:main", "HEAD:refs/heads/agent/two"])
            .await;
        let record = pushes(&forge).await.pop().unwrap();
        assert_eq!((record.verdict, record.status), (Verdict::Denied, Some(200)));
        for part in [
            "remote: sallyport: ",
            "! [remote rejected] HEAD -> main (",
            "! [remote rejected] HEAD -> agent/two (",
            &record.id,
            &record.reason[..20],
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(forge.at_forge("main").await, before);
        assert_eq!(
            (forge.at_forge("agent/two").await.as_str(), forge.arrived()),
            ("", 0)
        );
    }
}

#[tokio::test]
async fn force_and_deletion_are_refused_where_a_rule_says_so() {
    let forge = Forge::new(BOTH).await;
    let base = forge.at_forge("agent/base").await;
    forge.in_work(&["checkout", "-q", "main~1"]).await;
    forge.in_work(&["commit", "-q", "--amend", "-m", "Another"]).await;
    let said = forge
        .refused(&["--force", "origin", "HEAD:refs/heads/agent/base"])
        .await;
    assert!(
        said.contains("counts as forced") && said.contains("rule `default`"),
        "{said}"
    );
    let said = forge.refused(&["origin", ":refs/heads/agent/base"]).await;
    assert!(said.contains("[remote rejected]"), "{said}");
    assert_eq!((forge.at_forge("agent/base").await, forge.arrived()), (base, 0));
    let records = pushes(&forge).await;
    assert!(
        records[1].reason.contains("`refs/heads/agent/base` deleted"),
        "{records:?}"
    );
}

#[tokio::test]
async fn what_the_push_does_not_bring_with_it_counts_as_forced_and_the_refusal_says_so() {
    let forge = Forge::new(BOTH).await;
    // The forge has these commits already, so that git sends an empty pack.
    let said = forge.refused(&["origin", "main:refs/heads/agent/base"]).await;
    assert!(said.contains("nothing in the push shows"), "{said}");
    assert_eq!(forge.arrived(), 0);
}

#[tokio::test]
async fn large_chunked_pushes_of_many_refs_pass_and_are_refused_whole() {
    let forge = Forge::new(BOTH).await;
    // What cannot be compressed: 24 MiB in pieces of other sizes than anybody's buffers.
    let mut noise = Vec::with_capacity(24 << 20);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while noise.len() < 24 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    for (number, piece) in noise.chunks(5 << 20).enumerate() {
        forge.commit(&format!("noise{number}"), piece).await;
    }
    let said = forge.refused(&["origin", "HEAD:main"]).await;
    assert!(
        said.contains("remote: sallyport: ") && forge.arrived() == 0,
        "{said}"
    );
    for number in 0..300 {
        forge
            .in_work(&["tag", &format!("v{number}"), &format!("HEAD~{}", number % 3)])
            .await;
    }
    forge
        .in_work(&["push", "-q", "origin", "--tags", "HEAD:refs/heads/agent/large"])
        .await;
    assert_eq!(forge.at_forge("agent/large").await, forge.here("HEAD").await);
    assert_eq!(forge.at_forge("v299").await, forge.here("v299").await);
}

#[tokio::test]
async fn a_shallow_clone_pushes_and_fetches() {
    let forge = Forge::new(BOTH).await;
    let shallow = forge.folder().join("shallow");
    let shallow = shallow.to_str().unwrap();
    forge
        .done(&[
            "clone",
            "-q",
            "--depth",
            "1",
            "-b",
            "agent/base",
            &forge.url(),
            shallow,
        ])
        .await;
    std::fs::write(forge.folder().join("shallow/new"), "new").unwrap();
    forge.done(&["-C", shallow, "add", "--all"]).await;
    forge.done(&["-C", shallow, "commit", "-q", "-m", "New"]).await;
    forge
        .done(&["-C", shallow, "push", "-q", "origin", "HEAD:agent/base"])
        .await;
    let new = forge.done(&["-C", shallow, "rev-parse", "HEAD"]).await;
    assert_eq!(forge.at_forge("agent/base").await, new.trim());
    forge.in_work(&["fetch", "-q", "origin"]).await;
    assert_eq!(forge.here("origin/agent/base").await, new.trim());
}

#[tokio::test]
async fn a_refusal_of_the_forge_itself_arrives() {
    let forge = Forge::new(BOTH).await;
    let hook = forge.bare().join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho not today >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = forge.refused(&["origin", "HEAD:refs/heads/agent/one"]).await;
    assert!(
        said.contains("remote: not today") && !said.contains("sallyport:"),
        "{said}"
    );
}

#[tokio::test]
async fn a_repository_that_may_not_be_written_is_refused_before_the_push() {
    let forge = Forge::new(BOTH).await;
    forge
        .in_work(&[
            "remote",
            "set-url",
            "origin",
            &forge.url().replace("web", "other"),
        ])
        .await;
    let said = forge.refused(&["origin", "HEAD:refs/heads/agent/one"]).await;
    assert!(
        said.contains("decision ") && said.contains("acme/other"),
        "{said}"
    );
}

/// The beginning of a push that makes a branch, by hand.
fn by_hand(name: &str, coded: bool) -> Vec<u8> {
    let command = format!("{} {} {name}\0 report-status", "0".repeat(40), "1".repeat(40));
    let lines = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    if !coded {
        return lines;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&lines).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn coded_pushes_are_looked_into_and_unreadable_ones_are_refused() {
    let forge = Forge::new(BOTH).await;
    let at = forge.stand.at("allowed.test");
    for (body, coding, part) in [
        (by_hand("refs/heads/main", true), "gzip", "ng refs/heads/main "),
        (
            by_hand("refs/heads/main", false),
            "identity",
            "ng refs/heads/main ",
        ),
        (by_hand("refs/heads/main", false), "br", "content coding"),
        (by_hand("refs/heads/main", false), "gzip", "content coding"),
        (b"0009push-".to_vec(), "identity", "no command"),
        (b"000dpush-cert0000".to_vec(), "identity", "--signed"),
        (b"0040".to_vec(), "identity", "ended before"),
        (b"GET / HTTP".to_vec(), "identity", "pkt-line"),
    ] {
        let mut stream = forge.stand.h1("allowed.test").await;
        let head = format!(
            "POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: {at}\r\nContent-Encoding: {coding}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let (head, body) = ask(&mut stream, "").await;
        let status = if part.starts_with("ng") {
            "HTTP/1.1 200 "
        } else {
            "HTTP/1.1 403 "
        };
        assert!(
            head.starts_with(status) && body.contains(part),
            "{part}: {head}{body}"
        );
    }
    assert_eq!(forge.arrived(), 0);
}

#[tokio::test]
async fn a_value_in_a_file_or_a_message_of_a_commit_is_refused_by_its_name() {
    for version in ["HTTP/1.1", "HTTP/2"] {
        let forge = Forge::new(BOTH).await;
        forge.in_work(&["config", "http.version", version]).await;
        let with = |text: &str| format!("first\nlet token = \"{SECRET}\";\n{text}\n");
        forge.commit("config.py", with("last").as_bytes()).await;
        let said = forge.refused(&["origin", "HEAD:refs/heads/agent/leaky"]).await;
        for part in [
            "remote: sallyport: ",
            "credential `token`",
            "! [remote rejected] HEAD -> agent/leaky (",
        ] {
            assert!(said.contains(part), "{version}: {part}: {said}");
        }
        assert!(!said.contains(SECRET), "{said}");
        assert_eq!(forge.at_forge("agent/leaky").await, "");
        let record = pushes(&forge).await.pop().unwrap();
        assert_eq!((record.verdict, record.status), (Verdict::Denied, Some(200)));
        assert!(!format!("{record:?}").contains(SECRET));

        forge.in_work(&["reset", "-q", "--hard", "HEAD~1"]).await;
        forge.commit("plain", b"plain\n").await;
        forge
            .in_work(&["commit", "-q", "--amend", "-m", &with("in words")])
            .await;
        let said = forge.refused(&["origin", "HEAD:refs/heads/agent/leaky"]).await;
        assert!(said.contains("in a commit's message"), "{said}");

        forge
            .in_work(&["commit", "-q", "--amend", "--allow-empty", "-m", "clean"])
            .await;
        forge
            .in_work(&["push", "-q", "origin", "HEAD:refs/heads/agent/leaky"])
            .await;
        assert_eq!(forge.at_forge("agent/leaky").await, forge.here("HEAD").await);
    }
}

#[tokio::test]
async fn a_value_is_found_where_no_rule_looks_at_refs_and_through_gzip_too() {
    let forge = Forge::new(BOTH).await;
    let loose = crate::git::PUSHES.replace(r#"refs: ["agent/**", "refs/tags/v*"], force: false, "#, "");
    assert_ne!(loose, crate::git::PUSHES);
    forge.stand.put(&loose);
    forge.commit("noise", &vec![b'n'; 100_000]).await;
    forge
        .commit("config.py", format!("token = {SECRET}\n").as_bytes())
        .await;
    let said = forge.refused(&["origin", "HEAD:refs/heads/any"]).await;
    assert!(
        said.contains("credential `token`") && said.contains("[remote rejected]"),
        "{said}"
    );
    assert_eq!(
        (forge.at_forge("any").await.as_str(), forge.stand.sink.healthy()),
        ("", true)
    );
    forge.in_work(&["rm", "-q", "config.py"]).await;
    forge
        .in_work(&["commit", "-q", "--amend", "--allow-empty", "-m", "clean"])
        .await;
    forge
        .in_work(&["push", "-q", "origin", "HEAD:refs/heads/any"])
        .await;
    assert_eq!(forge.at_forge("any").await, forge.here("HEAD").await);
}
