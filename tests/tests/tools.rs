//! Tools inside a machine find placeholders without being told: git, curl, pip, npm and Docker's helper, and the agent's own list.
use sallyport_harness::{Running, Stage};
use serde_json::Value;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(240);

const POLICY: &str = r#"
version: 1
credentials:
  forge:
    from: {store: forge-token}
    hosts: [git.sallyport.test]
    in: [basic, bearer]
    env: FORGE_TOKEN
    for: clones and pushes
    user: acme-bot
  deploy:
    from: {store: deploy-token}
    hosts: [docs.sallyport.test]
    in: [bearer]
    env: DEPLOY_TOKEN
    for: tells the docs of a release
    grantable: {by: rule, expires: 1h}
rules:
  - id: forge
    to: {host: [git.sallyport.test, 127.0.0.0/8], private: true, port: 8443}
    use: [forge]
    effect: allow
  - id: docs
    to: {host: [docs.sallyport.test, 127.0.0.0/8], private: true, port: 8443}
    use: [deploy]
    effect: allow
"#;

const RUN: &str = r#"
title: tools
task: try the tools
policy: policy.yaml
model: {kind: scripted, turns: turns.yaml}
environment:
  hosts: {git.sallyport.test: "${service.address}", docs.sallyport.test: "${service.address}"}
  upstream_ca: "${service.ca_file}"
secrets: {forge-token: "${service.token_file}", deploy-token: deploy}
services:
  - command: [sallyport-origin, --dir, "${state}/origin", --name, git.sallyport.test, --name, docs.sallyport.test,
              --repository, "acme/invoices.git=${here}/repository"]
"#;

const SCRIPT: &str = r#"
say() { echo "$1=$2"; }
at=git.sallyport.test:8443
docs=https://docs.sallyport.test:8443
say list "$(sallyport-shim secret ls | tr -s ' ' | tr '\n' ';')"
say held "$(sallyport-shim secret ls --json | grep -c "$FORGE_TOKEN")"
say fill "$(printf 'protocol=https\nhost=%s\n\n' $at | git credential fill | tr '\n' ';')"
say stranger "$(printf 'protocol=https\nhost=other.test\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill 2>/dev/null | grep -c password)"
say docker "$(echo $at | docker-credential-sallyport get)"
mkdir work && cd work
git clone -q https://$at/acme/invoices.git && cd invoices
git config user.name Agent && git config user.email agent@sallyport.test
echo "a$FORGE_TOKEN" > note && git add note
say placeholder "$(git commit -qm note 2>&1 | grep -c 'note:1: the placeholder of credential `forge`')"
printf 'x = "%s_%s"\n' ghp $(printf 'a1%.0s' $(seq 18)) > note && git add note
say shape "$(git commit -qm note 2>&1 | grep -c 'note:1: what looks like a token')"
echo fine > note && git add note && git commit -qm note
rm -f ~/.netrc
say push "$(git push -q origin HEAD:refs/heads/agent 2>&1 && echo pushed)"
sallyport-shim secret ls > /dev/null
say curl "$(curl -sn -o /dev/null -w '%{http_code}' https://$at/echo)"
cd /tmp && python3 -m venv v
v/bin/pip download -q --no-deps --retries 0 --index-url https://$at/pip/simple nothing > /tmp/pip.log 2>&1
npm view nothing --fetch-retries 0 --registry https://$at/npm/ > /tmp/npm.log 2>&1
say before "$(curl -s -o /tmp/told -w '%{http_code}' -H "Authorization: Bearer $DEPLOY_TOKEN" $docs/echo) $(grep -c 'secret request deploy --for docs.sallyport.test' /tmp/told)"
say nobody "$(sallyport-shim secret request nothing --for docs.sallyport.test --why x; echo $?)"
say asked "$(sallyport-shim secret request deploy --for docs.sallyport.test --why 'to tell of the release'; echo $?)"
say after "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $DEPLOY_TOKEN" $docs/echo)"
say lent "$(sallyport-shim secret ls | grep -c 'lent at docs.sallyport.test')"
echo mine > ~/.npmrc && sallyport-shim secret ls > /dev/null
say mine "$(cat ~/.npmrc)"
"#;

/// The text of the only tool result of the only run.
fn result(stage: &Stage) -> String {
    let runs = stage.sallyport(&["ls", "--json"]).output().expect("runs");
    let run: Value = serde_json::from_slice(&runs.stdout).expect("one run");
    let id = run["id"].as_str().expect("an id");
    let logs = stage.sallyport(&["logs", id, "--json"]).output().expect("runs");
    let text = String::from_utf8(logs.stdout).expect("text");
    let entries = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a JSON line"));
    let mut results = entries.filter(|entry| entry["what"]["kind"] == "result");
    results.next().expect("a result")["what"]["text"]
        .as_str()
        .expect("text")
        .to_owned()
}

fn said<'a>(text: &'a str, probe: &str) -> &'a str {
    let mark = format!("{probe}=");
    let found = text.lines().find_map(|line| line.strip_prefix(&mark));
    assert!(found.is_some(), "no `{mark}` in:\n{text}");
    found.unwrap_or_default()
}

/// The credentials that arrived at the origin under a path.
fn arrived(stage: &Stage, path: &str) -> Vec<String> {
    let log = std::fs::read_to_string(stage.path("state/origin/origin.log")).expect("the origin's log");
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a JSON line"))
        .filter(|line| line["path"].as_str().is_some_and(|own| own.starts_with(path)))
        .filter_map(|line| line["credential"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn tools_log_in_with_placeholders_that_nobody_told_them_of() {
    let stage = Stage::new().expect("a stage");
    let home = stage.path("examples/first-run");
    let turns = serde_json::json!([
        {"tools": [{"bash": {"command": SCRIPT, "timeout_s": 200}}]},
        {"tools": [{"done": {"summary": "tried", "success": true}}]},
    ]);
    for (name, text) in [
        ("policy.yaml", POLICY),
        ("turns.yaml", &turns.to_string()),
        ("run.yaml", RUN),
        ("deploy", "dep_5Hx1Kq9Wm3Zt7Bn2Vc8L"),
    ] {
        std::fs::write(home.join(name), text).expect("writable");
    }
    let mut up = Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts");
    up.wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");
    let (status, printed) = Running::start(&mut stage.sallyport(&["run", &home.to_string_lossy()]))
        .expect("starts")
        .finish(LONG)
        .expect("ends");
    assert!(status.success(), "{printed}");
    let text = result(&stage);
    for part in [
        "forge $FORGE_TOKEN git.sallyport.test usable clones and pushes",
        "deploy $DEPLOY_TOKEN",
    ] {
        assert!(said(&text, "list").contains(part), "{part}:\n{text}");
    }
    assert_eq!(
        said(&text, "held"),
        "1",
        "the variable holds what the list tells:\n{text}"
    );
    assert!(
        said(&text, "fill").contains("username=acme-bot;password=ghp_"),
        "{text}"
    );
    assert!(
        said(&text, "docker").contains(r#""Username":"acme-bot""#),
        "{text}"
    );
    for (probe, expected) in [
        ("stranger", "0"),
        ("placeholder", "1"),
        ("shape", "1"),
        ("push", "pushed"),
        ("curl", "200"),
        ("before", "403 1"),
        ("after", "200"),
        ("lent", "1"),
        ("mine", "mine"),
    ] {
        assert_eq!(said(&text, probe), expected, "{probe}:\n{text}");
    }
    assert!(
        said(&text, "asked").starts_with("granted: credential `deploy` is lent at"),
        "{text}"
    );
    assert!(
        said(&text, "nobody").starts_with("refused: not granted: there is no credential"),
        "{text}"
    );
    let token = std::fs::read_to_string(stage.path("state/origin/token")).expect("the origin's token");
    for path in [
        "/acme/invoices.git/git-receive-pack",
        "/echo",
        "/pip/simple/nothing",
        "/npm/nothing",
    ] {
        assert!(arrived(&stage, path).contains(&token), "{path}:\n{text}");
    }
    assert!(!text.contains(&token), "{text}");
    let records = stage
        .sallyport(&["log", "--json", "--limit", "1000"])
        .output()
        .expect("runs");
    let records = String::from_utf8(records.stdout).expect("text");
    assert!(
        records.contains("credential `deploy`: granted by `policy`"),
        "{records}"
    );
    up.terminate().expect("a signal");
    up.finish(SHORT).expect("ends");
}
