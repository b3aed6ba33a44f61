//! What nobody used is told with its place, and a policy without it allows all that was recorded.
#![expect(clippy::panic, reason = "helpers of tests may fail the test")]

mod log;

use log::{Log, none};
use proptest::prelude::*;
use sallyport_policy::{People, Policy, PolicyText, Replay, Shrink, ShrinkReport, Who, shrink::Suggestion};

const POLICY: &str = "version: 1
sets:
  docs: [docs.test, guide.test, old.test]
  bad: [paste.test, drop.test]
credentials:
  token: {from: {store: token}, hosts: [api.test], in: [bearer]}
  spare: {from: {store: spare}, hosts: [api.test], in: [bearer]}
rules:
  - {id: read-docs, to: {host: docs, methods: [GET, HEAD, POST]}, effect: allow}
  - {id: api, to: {host: [api.test, beta.test], methods: [GET, PUT], path: [\"/v1/**\", \"/v2/**\"]}, use: [token, spare], effect: allow}
  - {id: idle, to: {host: idle.test}, effect: allow}
  - {id: no-paste, to: {host: bad}, effect: deny}
  - {id: person, to: {host: pay.test}, effect: ask}
tests:
  - {request: \"GET https://idle.test/\", expect: allow, rule: idle}
";

fn files(text: &str) -> Vec<PolicyText> {
    vec![PolicyText {
        name: "policy.yaml".to_owned(),
        text: text.to_owned(),
    }]
}

fn shrunk(text: &str, log: &Log, since: &str) -> ShrinkReport {
    let since = since.parse().unwrap_or_else(|error| panic!("{error}"));
    let shrink = Shrink::new(&files(text), since).unwrap_or_else(|problems| panic!("{problems:#?}"));
    shrink.report(&shrink.lines(&log.lines, &People::default()))
}

const ALWAYS: &str = "2026-01-01T00:00:00Z";

#[test]
fn what_nobody_used_is_told_with_its_place_and_its_last_use() {
    let mut log = Log::default();
    log.add(
        "GET https://idle.test/",
        "allowed",
        "idle",
        serde_json::json!({"at": "2026-02-01T00:00:00Z"}),
    );
    log.add(
        "PUT https://paste.test/",
        "denied",
        "no-paste",
        serde_json::json!({"at": "2026-02-01T00:00:00Z"}),
    );
    log.add("GET https://docs.test/", "allowed", "read-docs", none());
    log.add("GET https://guide.test/", "allowed", "read-docs", none());
    log.add(
        "PUT https://api.test/v1/x",
        "allowed",
        "api",
        serde_json::json!({"credentials_used": ["token"]}),
    );
    let report = shrunk(POLICY, &log, "2026-04-01T00:00:00Z");
    log::golden("shrink.txt", &report.to_string());
    log::golden(
        "shrink.json",
        &serde_json::to_string_pretty(&report).unwrap_or_default(),
    );
}

#[test]
fn without_traffic_nothing_is_said() {
    let report = shrunk(POLICY, &Log::default(), ALWAYS);
    assert!(report.suggestions.is_empty() && report.quiet.is_empty());
    assert!(report.to_string().contains("nothing can be said"));
}

/// Takes out what is suggested. In these policies a rule, a credential and a test are a line, all else an entry of a list.
fn applied(text: &str, suggestions: &[Suggestion]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut last_first: Vec<&Suggestion> = suggestions.iter().collect();
    last_first.sort_by_key(|it| std::cmp::Reverse((it.line, it.column)));
    for it in last_first {
        let line = &mut lines[it.line as usize - 1];
        if ["rule", "test", "credential"].contains(&it.what) {
            line.clear();
            continue;
        }
        let at = it.column as usize - 1;
        let end = line[at..].find([',', ']']).map_or(line.len(), |end| at + end);
        match line[end..].strip_prefix(", ") {
            Some(rest) => *line = format!("{}{rest}", &line[..at]),
            None => *line = format!("{}{}", line[..at].trim_end_matches(", "), &line[end..]),
        }
    }
    lines
        .join("\n")
        .replace("use: [], ", "")
        .replace("tests:\n\n", "\n")
        .trim_end()
        .trim_end_matches("tests:")
        .to_owned()
}

proptest! {
    #[test]
    fn a_policy_without_what_nobody_used_allows_all_that_was_recorded(
        requests in proptest::collection::vec(
            ("(GET|HEAD|POST|PUT)", "(docs|guide|old|api|beta|idle|paste|pay)", "/(v1|v2|x)/[a-c]", any::<bool>()),
            1..12,
        )
    ) {
        let mut log = Log::default();
        log.session(&Who::default());
        for (method, host, path, token) in &requests {
            let more = match token {
                true => serde_json::json!({"credentials_used": ["token"]}),
                false => none(),
            };
            log.add(&format!("{method} https://{host}.test{path}"), "allowed", "any", more);
        }
        let report = shrunk(POLICY, &log, ALWAYS);
        prop_assert!(report.suggestions.iter().all(|it| it.of != "no-paste" && it.of != "person" && it.of != "bad"));
        let smaller = applied(POLICY, &report.suggestions);
        let replayed = |text: &str| {
            let policy = Policy::compile(&files(text)).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"));
            let replay = Replay::new(policy, 0);
            replay.report(replay.lines(&log.lines, &People::default())).counts
        };
        prop_assert_eq!(replayed(POLICY), replayed(&smaller), "{}", smaller);
    }
}
