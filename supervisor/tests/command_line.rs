//! The command line as a shell meets it: exit codes, and messages that name the thing and the way out.
use std::path::Path;
use std::process::{Command, Output};

fn sallyport(state: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sallyport"))
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SALLYPORT_STATE", state)
        .output()
        .expect("it works")
}

/// Checks the exit code; gives what was said on stderr.
fn fails_with(code: i32, output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).expect("it works");
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(output.stdout.is_empty());
    text
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("it works")
}

#[test]
fn help_and_version_succeed_and_wrong_usage_is_2() {
    let state = folder();
    assert!(sallyport(state.path(), &["--help"]).status.success());
    assert!(sallyport(state.path(), &["--version"]).status.success());
    fails_with(2, &sallyport(state.path(), &[]));
    fails_with(2, &sallyport(state.path(), &["fly"]));
    let text = fails_with(2, &sallyport(state.path(), &["log", "--verdict", "perhaps"]));
    assert!(text.contains("upstream-failed"), "{text}");
    fails_with(2, &sallyport(state.path(), &["log", "--limit", "0"]));
    fails_with(2, &sallyport(state.path(), &["run", "x", "--detach", "--follow"]));
}

#[test]
fn without_a_supervisor_the_way_to_one_is_told() {
    let state = folder();
    for command in [
        &["ls"][..],
        &["logs", "r"],
        &["stop", "r"],
        &["say", "r", "hello"],
        &["log"],
        &["login"],
    ] {
        let text = fails_with(75, &sallyport(state.path(), command));
        assert!(
            text.contains("sallyport up") && text.contains("--state"),
            "{text}"
        );
    }
    let output = Command::new(env!("CARGO_BIN_EXE_sallyport"))
        .arg("ls")
        .env_clear()
        .output()
        .expect("it works");
    assert!(fails_with(2, &output).contains("$HOME"));
}

#[test]
fn a_run_file_that_is_wrong_is_named_with_its_place() {
    let state = folder();
    let runs = folder();
    let file = runs.path().join("run.yaml");
    let text = fails_with(1, &sallyport(state.path(), &["run", &file.display().to_string()]));
    assert!(text.contains("run.yaml: cannot be read"), "{text}");
    std::fs::write(&file, "title: t\ntask: x\npolicy: p.yaml\nmodle: {}\n").expect("it works");
    let text = fails_with(
        1,
        &sallyport(state.path(), &["run", &runs.path().display().to_string()]),
    );
    assert!(
        text.contains("run.yaml:4:1: ") && text.contains("modle"),
        "{text}"
    );
    let services = "title: t\ntask: x\npolicy: p.yaml\nmodel: {kind: scripted, turns: t.yaml}\nservices: [{command: [x]}]\n";
    std::fs::write(&file, services).expect("it works");
    let text = fails_with(
        2,
        &sallyport(state.path(), &["run", &file.display().to_string(), "--detach"]),
    );
    assert!(text.contains("services"), "{text}");
}

#[test]
fn a_state_directory_or_address_that_cannot_be_used_is_named() {
    let file = tempfile::NamedTempFile::new().expect("it works");
    let text = fails_with(1, &sallyport(&file.path().join("state"), &["up"]));
    assert!(
        text.contains("cannot be made") && text.contains("--state"),
        "{text}"
    );
    let text = fails_with(
        1,
        &sallyport(Path::new(&format!("/tmp/{}", "x".repeat(120))), &["up"]),
    );
    assert!(text.contains("too long"), "{text}");
    let state = folder();
    let text = fails_with(2, &sallyport(state.path(), &["up", "--listen", "0.0.0.0:0"]));
    assert!(text.contains("loopback"), "{text}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("it works");
    let address = taken.local_addr().expect("it works").to_string();
    let text = fails_with(1, &sallyport(state.path(), &["up", "--listen", &address]));
    assert!(text.contains(&address) && text.contains("--listen"), "{text}");
    let text = fails_with(
        1,
        &sallyport(state.path(), &["up", "--upstream-ca", "/no/such.pem"]),
    );
    assert!(text.contains("/no/such.pem"), "{text}");
}

#[test]
fn an_invalid_policy_is_3() {
    let state = folder();
    let file = state.path().join("policy.yaml");
    std::fs::write(&file, "version: 1\nrulez: []\n").expect("it works");
    let output = sallyport(state.path(), &["policy", "check", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(3));
}
