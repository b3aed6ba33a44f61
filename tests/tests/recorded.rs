//! Policies against recorded traffic: replay, learn and shrink read a log that the gateway's own store wrote.
use sallyport_gateway::audit::Sink;
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use sallyport_harness::Stage;
use sallyport_policy::{Reason, Refusal, Remedy, Who};
use std::process::Command;

/// A record of now; `what` is the method, host and path.
fn record(what: [&str; 3], verdict: Verdict, rule: &str) -> AuditRecord {
    let [method, host, path] = what;
    let reason = Reason {
        rule: rule.to_owned(),
        text: format!("rule `{rule}` said so"),
    };
    let refusal = Refusal {
        reason,
        remedy: Remedy::None,
        hint: None,
    };
    let refused = !matches!(verdict, Verdict::Allowed);
    AuditRecord {
        id: format!("{method}-{host}{path}"),
        session: "run-1".to_owned(),
        user: "ada".to_owned(),
        host: host.to_owned(),
        port: 443,
        method: Some(method.to_owned()),
        path: Some(path.to_owned()),
        rule: rule.to_owned(),
        reason: format!("rule `{rule}` said so"),
        refusal: refused.then_some(refusal),
        policy_hash: "ff".to_owned(),
        status: Some(200),
        duration_ms: 1,
        ending: "complete".to_owned(),
        tls: Some(true),
        ..AuditRecord::of("http", verdict)
    }
}

/// A stage with a log in its state directory.
async fn stage() -> Stage {
    let stage = Stage::new().expect("a stage");
    let folder = stage.path("state/gateway");
    std::fs::create_dir(&folder).expect("writable");
    let sink = Sink::open(&folder).expect("a log");
    let who = Who {
        team: "web".to_owned(),
        ..Who::default()
    };
    let session = AuditRecord {
        kind: "session".to_owned(),
        method: None,
        path: None,
        who: Some(Box::new(who)),
        ..record(["", "", ""], Verdict::Allowed, "")
    };
    let mut open = record(["POST", "api.test", "/v1/jobs"], Verdict::Allowed, "api");
    open.ending = "open".to_owned();
    let ended = AuditRecord {
        ending: "complete".to_owned(),
        ..open.clone()
    };
    for record in [
        session,
        record(["GET", "api.test", "/v1/jobs/17"], Verdict::Allowed, "api"),
        open,
        ended,
        record(["GET", "docs.test", "/a"], Verdict::Observed, "default"),
        AuditRecord {
            kind: "ssh".to_owned(),
            port: 22,
            login: Some("git".to_owned()),
            tls: None,
            ..record(
                ["exec", "forge.test", "git-upload-pack '/acme/web.git'"],
                Verdict::Allowed,
                "forge",
            )
        },
        record(["GET", "paste.test", "/a"], Verdict::Denied, "default"),
    ] {
        sink.write(record).await.expect("durable");
    }
    stage
}

/// Exit code and standard output of `sallyport policy WORDS`, in which `FILE` is a file with this policy.
fn policy(stage: &Stage, words: &[&str], text: &str) -> (Option<i32>, String) {
    let file = stage.path("home/policy.yaml");
    std::fs::write(&file, text).expect("writable");
    let file = file.to_string_lossy().into_owned();
    let output = Command::new(stage.path("bin/sallyport"))
        .arg("policy")
        .args(words.iter().map(|word| word.replace("FILE", &file)))
        .arg("--state")
        .arg(stage.path("state"))
        .env_clear()
        .output()
        .expect("starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.is_empty(), "{told}");
    (output.status.code(), printed)
}

const SAME: &str = "version: 1
rules:
  - {id: api, to: {host: api.test}, who: {team: web}, effect: allow}
  - {id: docs, to: {host: [docs.test, guide.test]}, effect: allow}
  - {id: forge, to: {host: forge.test, port: 22, protocol: git, repository: acme/web, access: read}, effect: allow}
";

#[tokio::test]
async fn a_policy_is_replayed_against_the_stored_log() {
    let stage = stage().await;
    let (code, text) = policy(&stage, &["replay", "FILE", "--since", "1h"], SAME);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("5 requests, "),
        "one exchange is one request: {text}"
    );
    let narrow = SAME.replace("team: web", "team: data");
    let (code, text) = policy(&stage, &["replay", "FILE", "--since", "1h", "--json"], &narrow);
    assert_eq!(code, Some(4), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).expect("a document");
    assert_eq!(report["counts"]["blocked"], 2, "{text}");
    let fewer = SAME.replace("repository: acme/web", "repository: acme/docs");
    let (code, text) = policy(&stage, &["replay", "FILE", "--since", "1h"], &fewer);
    assert!(
        code == Some(4) && text.contains("ssh git@forge.test:22 git-upload-pack"),
        "{text}"
    );
    assert_eq!(report["hosts"]["groups"][0]["host"], "api.test");
    assert_eq!(report["agents"]["groups"][0]["user"], "ada");
}

#[tokio::test]
async fn what_a_run_did_is_learnt_and_passes_its_own_tests() {
    let stage = stage().await;
    let (code, text) = policy(
        &stage,
        &["learn", "--run", "run-1", "--base", "FILE"],
        "version: 1\n",
    );
    assert_eq!(code, Some(0), "{text}");
    for part in ["host: docs.test", "\"/v1/jobs/{id}\"", "methods: [POST]"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("paste"), "{text}");
    assert!(text.contains("rules with `protocol: git` for ssh"), "{text}");
    let (code, told) = policy(&stage, &["test", "FILE"], &text);
    assert_eq!(code, Some(0), "{told}");
}

#[tokio::test]
async fn what_nobody_used_is_told() {
    let stage = stage().await;
    let (code, text) = policy(&stage, &["shrink", "FILE", "--since", "30d"], SAME);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("policy.yaml:4:"), "{text}");
    assert!(
        text.contains("host `guide.test` of rule `docs` was not used"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
}
