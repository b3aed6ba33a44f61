//! The main job, whole and real: an agent clones, installs, is refused, asks, mends and pushes behind the door.
use sallyport_harness::{Running, Stage, files_with};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(400);
const SHORT: Duration = Duration::from_secs(60);

fn token(stage: &Stage) -> String {
    std::fs::read_to_string(stage.path("state/origin/token")).expect("the origin has a token")
}

/// What a git command says about the origin's repository.
fn at_origin(stage: &Stage, arguments: &[&str]) -> String {
    let repository = stage.path("state/origin/repositories/acme/invoices.git");
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(repository)
        .args(arguments)
        .output()
        .expect("git runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// The JSON lines that a command prints.
fn json_lines(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}

/// The repair was pushed, once, by the token and not by a placeholder.
fn assert_one_push(stage: &Stage) {
    assert_eq!(
        at_origin(stage, &["rev-list", "--count", "main"]).trim(),
        "2",
        "one commit more than the seed"
    );
    assert!(at_origin(stage, &["show", "main:money.py"]).contains("ROUND_HALF_UP"));
    let moves = at_origin(stage, &["reflog", "show", "main"]);
    assert_eq!(
        moves.lines().filter(|line| line.contains("push")).count(),
        1,
        "{moves}"
    );
    let log = std::fs::read_to_string(stage.path("state/origin/origin.log")).expect("the origin's log");
    let credentials: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a JSON line"))
        .filter_map(|line| line["credential"].as_str().map(str::to_owned))
        .collect();
    assert!(!credentials.is_empty());
    assert!(
        credentials.iter().all(|seen| *seen == token(stage)),
        "the origin saw something else than the token"
    );
}

/// The value stands nowhere on the stage, except where the origin itself keeps it.
fn assert_nowhere(stage: &Stage) {
    let origin = stage.path("state/origin");
    let mut found = files_with(&stage.path("state"), &token(stage)).expect("readable");
    found.extend(files_with(&stage.path("home"), &token(stage)).expect("readable"));
    let found: Vec<_> = found.iter().filter(|path| !path.starts_with(&origin)).collect();
    assert!(found.is_empty(), "the token stands in {found:?}");
}

/// What a browser gets with the address that `up` printed: the conversation as events, the network log, and nothing without it.
fn assert_seen_in_a_browser(stage: &Stage, printed: &str, run: &str) {
    let login = printed
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .expect("an address");
    let root = login.split("/login").next().expect("an address");
    let jar = stage.path("cookies");
    let get = |more: &[&str], url: &str| {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "20"])
            .args(more)
            .arg(url)
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let jar = jar.to_string_lossy();
    let status = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(
        get(&status, &format!("{root}/api/runs")),
        "401",
        "nothing without a log-in"
    );
    let page = get(&["-L", "-c", &jar, "-b", &jar], login);
    assert!(page.contains("<html") && page.contains("Sallyport"), "{page}");
    let events = get(&["-b", &jar], &format!("{root}/api/runs/{run}/events"));
    for part in [
        "company-docs",
        r#""granted":true"#,
        r#""kind":"ended""#,
        "half up",
    ] {
        assert!(events.contains(part), "no `{part}` in the events:\n{events}");
    }
    let refused = get(
        &["-b", &jar],
        &format!("{root}/api/audit?verdict=denied&host=docs.sallyport.test"),
    );
    assert!(refused.contains("company-docs"), "{refused}");
    assert!(!events.contains(&token(stage)) && !refused.contains(&token(stage)));
}

fn kinds(entries: &[Value]) -> Vec<&str> {
    entries
        .iter()
        .filter_map(|entry| entry["what"]["kind"].as_str())
        .collect()
}

#[test]
fn an_agent_does_real_work_behind_the_door() {
    let stage = Stage::new().expect("a stage");
    let example = stage.path("examples/first-run");
    let mut up = Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts");
    let address = up
        .wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");

    let run = Running::start(&mut stage.sallyport(&["run", &example.to_string_lossy()])).expect("starts");
    let (status, printed) = run.finish(LONG).expect("ends");
    assert!(status.success(), "{printed}");
    assert_one_push(&stage);

    let runs = json_lines(&mut stage.sallyport(&["ls", "--json"]));
    let id = runs[0]["id"].as_str().expect("an id");
    let entries = json_lines(&mut stage.sallyport(&["logs", id, "--json"]));
    let kinds = kinds(&entries);
    let refused = kinds
        .iter()
        .position(|kind| *kind == "refused")
        .expect("a refusal in the conversation");
    let granted = kinds
        .iter()
        .position(|kind| *kind == "access")
        .expect("a grant in the conversation");
    assert!(refused < granted, "refused first, then granted");
    assert_eq!(kinds.last(), Some(&"ended"));
    let grant = entries
        .iter()
        .find(|entry| entry["what"]["kind"] == "access")
        .expect("found above");
    assert_eq!(grant["what"]["granted"], true);

    let records = json_lines(&mut stage.sallyport(&["log", "--json", "--limit", "1000"]));
    let of = |host: &str, verdict: &str| {
        records
            .iter()
            .filter(|record| record["host"] == host && record["verdict"] == verdict)
            .count()
    };
    assert!(
        of("docs.sallyport.test", "denied") >= 1,
        "the refusal is in the network log"
    );
    assert!(
        of("docs.sallyport.test", "granted") >= 1,
        "the grant is in the network log"
    );
    assert!(
        of("docs.sallyport.test", "allowed") >= 1,
        "what the grant let through is in the network log"
    );
    let pushed = records
        .iter()
        .find(|record| record["path"] == "/acme/invoices.git/git-receive-pack")
        .expect("the push is in the network log");
    assert_eq!(pushed["credentials_used"][0], "git-token");

    assert_seen_in_a_browser(&stage, &address, id);
    assert!(!printed.contains(&token(&stage)), "the terminal shows the token");
    assert_nowhere(&stage);
    up.terminate().expect("a signal");
    let (status, printed) = up.finish(SHORT).expect("ends");
    assert!(status.success(), "{printed}");
    assert!(!printed.contains(&token(&stage)));
}

#[test]
fn a_supervisor_that_is_killed_in_the_middle_goes_on_where_it_was() {
    let stage = Stage::new().expect("a stage");
    let example = stage.path("examples/first-run");
    let mut up = Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts");
    up.wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");
    let mut run = Running::start(&mut stage.sallyport(&["run", &example.to_string_lossy()])).expect("starts");
    run.wait_for("venv", LONG).expect("the installation has begun");

    up.kill().expect("it dies");
    // The machine lives on meanwhile, and holds a placeholder only.
    assert_nowhere(&stage);

    let mut up =
        Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts again");
    up.wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");
    let (status, printed) = run.finish(LONG).expect("ends");
    assert!(status.success(), "{printed}");
    assert_one_push(&stage);

    let runs = json_lines(&mut stage.sallyport(&["ls", "--json"]));
    assert_eq!(runs.len(), 1, "no second run was made");
    let entries =
        json_lines(&mut stage.sallyport(&["logs", runs[0]["id"].as_str().expect("an id"), "--json"]));
    let calls: Vec<&str> = entries
        .iter()
        .filter_map(|entry| entry["what"]["call"].as_str())
        .collect();
    for call in &calls {
        let of = |kind: &str| {
            let same = |entry: &&Value| entry["what"]["call"] == *call && entry["what"]["kind"] == kind;
            entries.iter().filter(same).count()
        };
        assert_eq!(
            (of("call"), of("result")),
            (1, 1),
            "each call has one result: {call}"
        );
    }
    up.terminate().expect("a signal");
    up.finish(SHORT).expect("ends");
}
