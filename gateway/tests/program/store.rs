//! The local store as an operator keeps it: values and keys that change, passphrases, and a command that is killed at any moment.
use crate::running::{Running, fails_with, output, program, spec};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const FIRST: &str = "ghp_0123456789abcdefABCDEF0123456789";
const SECOND: &str = "ghp_ABCDEF0123456789abcdef9876543210";

fn told(state: &Path, arguments: &[&str], input: &str) -> String {
    let output = output(state, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_rotated_value_is_told_of_and_the_placeholder_stays() {
    let state = tempfile::tempdir().unwrap();
    told(state.path(), &["secret", "set", "forge"], FIRST);
    let gateway = Running::start(state.path(), &[]);
    let (_, view) = gateway.call("PUT", "/v1/sessions/r", &spec());
    let placeholder = |view: &str| {
        let view: serde_json::Value = serde_json::from_str(view).unwrap();
        view["credentials"][0]["placeholder"].as_str().unwrap().to_owned()
    };
    let before = placeholder(&view);
    let said = told(state.path(), &["secret", "rotate", "forge"], SECOND);
    assert!(
        said.contains("`forge` has another value") && !said.contains("ghp_"),
        "{said}"
    );
    let text = fails_with(1, &output(state.path(), &["secret", "rotate", "forge"], SECOND));
    assert!(text.contains("has this value already"), "{text}");
    let text = fails_with(1, &output(state.path(), &["secret", "rotate", "other"], FIRST));
    assert!(text.contains("there is no secret `other`"), "{text}");
    assert_eq!(placeholder(&gateway.call("GET", "/v1/sessions/r", "").1), before);
}

#[test]
fn a_store_goes_under_a_passphrase_and_a_gateway_starts_with_it() {
    let state = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (
        file("right", "correct horse battery\n"),
        file("wrong", "correct horse batter\n"),
    );
    told(state.path(), &["secret", "set", "forge"], FIRST);
    let short = file("short", "horse");
    let text = fails_with(
        1,
        &output(
            state.path(),
            &["secret", "rekey", "--new-passphrase-file", &short],
            "",
        ),
    );
    assert!(text.contains("at least 12 characters"), "{text}");
    let said = told(
        state.path(),
        &["secret", "rekey", "--new-passphrase-file", &right],
        "",
    );
    assert!(said.contains("Argon2id with 65536 KiB, 3 passes"), "{said}");
    assert!(!state.path().join("secrets.key").exists());
    let text = fails_with(
        1,
        &output(state.path(), &["secret", "list", "--passphrase-file", &wrong], ""),
    );
    assert!(text.contains("does not open with this passphrase"), "{text}");
    let gateway = Running::start(state.path(), &["--passphrase-file", &right]);
    let (_, view) = gateway.call("PUT", "/v1/sessions/r", &spec());
    assert!(view.contains("\"placeholder\":\"ghp_"), "{view}");
    drop(gateway);
    // As a service gets it.
    std::fs::rename(&right, folder.path().join("sallyport-passphrase")).unwrap();
    let listed = program(state.path())
        .args(["secret", "list"])
        .env("CREDENTIALS_DIRECTORY", folder.path())
        .output()
        .unwrap();
    assert_eq!(listed.stdout, b"forge\n", "{listed:?}");
    let back = program(state.path())
        .args(["secret", "rekey"])
        .env("CREDENTIALS_DIRECTORY", folder.path())
        .output()
        .unwrap();
    assert!(back.status.success(), "{back:?}");
    assert_eq!(told(state.path(), &["secret", "list"], ""), "forge\n");
}

/// Starts a command and kills it after a while; whether it had ended by itself.
fn killed_after(state: &Path, arguments: &[&str], input: &str, wait: Duration) -> bool {
    let mut child = program(state)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It may be dead before it has read.
    let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
    let end = Instant::now() + wait;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return true;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

#[test]
fn nothing_is_lost_whenever_a_command_is_killed() {
    let state = tempfile::tempdir().unwrap();
    let began = Instant::now();
    told(state.path(), &["secret", "set", "n0"], FIRST);
    // From a small part of that on, each a little longer than the one before, until some have ended before they were killed.
    let mut wait = began.elapsed() / 30;
    let mut kept: BTreeSet<String> = BTreeSet::from(["n0".to_owned()]);
    let (mut ended, mut broken_off) = (0, 0);
    for round in 1_u32.. {
        wait = wait * 9 / 8;
        let name = format!("n{round}");
        let done = match round % 2 {
            0 => killed_after(state.path(), &["secret", "rekey"], "", wait),
            _ => killed_after(state.path(), &["secret", "set", &name], SECOND, wait),
        };
        if done {
            ended += 1;
        } else {
            broken_off += 1;
        }
        if done && round % 2 == 1 {
            kept.insert(name);
        }
        let names: BTreeSet<String> = told(state.path(), &["secret", "list"], "")
            .lines()
            .map(str::to_owned)
            .collect();
        assert!(kept.is_subset(&names), "round {round}: {kept:?} of {names:?}");
        assert!(!state.path().join("secrets.key.next").exists(), "round {round}");
        kept = names;
        if round >= 30 && ended >= 3 {
            break;
        }
        assert!(wait < Duration::from_secs(20), "none ends before it is killed");
    }
    assert!(broken_off > 5, "{broken_off} were killed");
}
