//! Policies rolled out by the commands, through supervisor and gateway: published, broken, rolled back, ended.
use sallyport_harness::{Running, Stage};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_secs(60);

fn ceiling(host: &str) -> String {
    format!("version: 1\nname: c\nrules:\n  - {{id: ceiling, to: {{host: {host}}}, effect: allow}}\n")
}

/// Runs a command of `sallyport policy`; its exit code and what it printed.
fn policy(stage: &Stage, words: &[&str]) -> (i32, String) {
    let (status, printed) = Running::start(&mut stage.sallyport(&[&["policy"], words].concat()))
        .expect("starts")
        .finish(SHORT)
        .expect("ends");
    (status.code().expect("an exit code"), printed)
}

/// What `status` prints, once that is right: files are looked at every second.
fn status_until(stage: &Stage, code: i32, word: &str) -> String {
    let end = Instant::now() + SHORT;
    loop {
        let (got, printed) = policy(stage, &["status"]);
        if got == code && printed.contains(word) {
            return printed;
        }
        assert!(Instant::now() < end, "no `{word}`, but {got}: {printed}");
    }
}

#[test]
fn a_policy_is_published_broken_rolled_back_and_ended_by_commands() {
    let stage = Stage::new().expect("a stage");
    let mut up = Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts");
    up.wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");
    let (code, printed) = policy(&stage, &["status"]);
    assert!(code == 0 && printed.contains("no policy stands"), "{printed}");
    let file = stage.path("home/mine.yaml");
    let name = file.to_str().expect("text");
    let publish = |text: &str| {
        std::fs::write(&file, text).expect("writable");
        policy(
            &stage,
            &[
                "publish",
                name,
                "--layer",
                "organisation",
                "--note",
                "first words",
            ],
        )
    };
    let (code, printed) = publish(&ceiling("a.test"));
    assert!(
        code == 0 && printed.contains("version 1") && printed.contains("first words"),
        "{printed}"
    );
    let (code, printed) = publish("version: 1\nrulez: []\n");
    assert!(code == 3 && printed.contains("mine.yaml:2:"), "{printed}");
    let (code, printed) = publish(&ceiling("b.test"));
    assert!(code == 0 && printed.contains("version 2"), "{printed}");
    let (code, printed) = policy(&stage, &["rollback", "--layer", "organisation"]);
    assert!(
        code == 0 && printed.contains("version 3") && printed.contains("rollback to 1"),
        "{printed}"
    );
    let (code, printed) = policy(&stage, &["versions"]);
    assert!(code == 0 && printed.lines().count() == 4, "{printed}");
    let standing = stage.path("state/gateway/policies/organisation.yaml");
    assert_eq!(
        std::fs::read_to_string(&standing).expect("readable"),
        ceiling("a.test")
    );
    std::fs::write(&standing, "version: 1\nrulez: []\n").expect("writable");
    let printed = status_until(&stage, 1, "BROKEN");
    assert!(
        printed.contains("organisation: version 3") && printed.contains("organisation.yaml:2:"),
        "{printed}"
    );
    let (code, printed) = policy(&stage, &["withdraw", "--layer", "organisation"]);
    assert!(code == 0 && printed.contains("version 4"), "{printed}");
    let (code, printed) = policy(&stage, &["rollback", "--layer", "team", "--name", "web"]);
    assert!(code == 1 && printed.contains("no such policy"), "{printed}");
    let (code, printed) = policy(&stage, &["rollback", "--layer", "team"]);
    assert!(code == 2 && printed.contains("team's name"), "{printed}");
    up.terminate().expect("told");
    up.finish(SHORT).expect("ends");
}
