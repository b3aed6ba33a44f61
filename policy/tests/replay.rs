//! Recorded traffic decided again: what would change is told, and what records do not tell is never guessed.
#![expect(clippy::panic, reason = "helpers of tests may fail the test")]

mod log;

use log::{Log, none};
use sallyport_policy::{People, Policy, PolicyText, Replay, ReplayReport, Who};

/// A policy of these rules.
fn policy(rules: &str) -> Policy {
    let text = format!("version: 1\nrules:\n{rules}");
    let name = "new.yaml".to_owned();
    Policy::compile(&[PolicyText { name, text }]).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// What a policy of these rules makes of a log.
fn replayed(log: &Log, rules: &str) -> ReplayReport {
    let replay = Replay::new(policy(rules), 2);
    let tally = replay.lines(&log.lines, &People::default());
    replay.report(tally)
}

/// Blocked, asked, allowed, cannot be told, unchanged.
fn counts(report: &ReplayReport) -> [u64; 5] {
    let counts = report.counts;
    [
        counts.blocked,
        counts.asked,
        counts.allowed,
        counts.untold,
        counts.unchanged,
    ]
}

const READ_A: &str = "  - {id: read, to: {host: a.test, methods: [GET]}, effect: allow}\n";

#[test]
fn what_a_policy_changes_is_told_by_host_rule_and_agent() {
    let mut log = Log::default();
    log.add("GET https://a.test/x", "allowed", "old", none());
    log.add("POST https://a.test/x", "allowed", "old", none());
    log.add("POST https://b.test/x", "asked", "ask-b", none());
    log.add("GET https://a.test/y", "denied", "default", none());
    log.add("DELETE https://c.test/y", "allowed", "old", none());
    log.add(
        "PUT https://c.test/y",
        "allowed",
        "old",
        serde_json::json!({"session": "run-2", "user": "bob"}),
    );
    log.lines.push_str("no record\n");
    log.add(
        "GET https://a.test",
        "granted",
        "read",
        serde_json::json!({"kind": "access"}),
    );
    let rules = format!("{READ_A}  - {{id: ask-c, to: {{host: c.test}}, effect: ask}}\n");
    let report = replayed(&log, &rules);
    assert_eq!(counts(&report), [2, 2, 1, 0, 1]);
    assert!(report.hurts());
    assert_eq!((report.others, report.unreadable), (1, 1));
    log::golden("replay.txt", &format!("{report:90}"));
    log::golden("replay.json", &serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn a_log_in_pieces_gives_the_same_report() {
    let mut log = Log::default();
    log.session(&Who {
        team: "web".into(),
        ..Who::default()
    });
    for number in 0..40 {
        log.add(
            &format!("GET https://h{}.test/{number}", number % 7),
            "allowed",
            "old",
            none(),
        );
    }
    let rules = "  - {id: web, to: {host: h1.test}, who: {team: web}, effect: allow}\n";
    let whole = replayed(&log, rules);
    let replay = Replay::new(policy(rules), 2);
    let lines: Vec<&str> = log.lines.split_inclusive('\n').collect();
    for size in [1, 3, 17] {
        let mut people = People::default();
        let mut tally = replay.tally();
        for piece in lines.chunks(size) {
            let piece = piece.concat();
            tally.add(replay.lines(&piece, &people));
            piece
                .lines()
                .filter(|line| line.contains(People::MARK))
                .for_each(|line| people.meet(line));
        }
        assert_eq!(replay.report(tally), whole);
    }
    assert_eq!(whole.counts.unchanged, 6);
}

#[test]
fn facts_of_a_run_that_no_record_tells_are_not_guessed() {
    let rules = "  - {id: web, to: {host: a.test}, who: {team: web}, effect: allow}\n  \
                 - {id: ada, to: {host: b.test}, who: {user: ada}, effect: allow}\n  \
                 - {id: all, to: {host: c.test}, effect: allow}\n";
    let mut log = Log::default();
    for host in ["a", "b", "c"] {
        log.add(&format!("GET https://{host}.test/"), "allowed", "old", none());
    }
    let report = replayed(&log, rules);
    assert_eq!(counts(&report), [0, 0, 0, 1, 2]);
    let example = &report.hosts.groups[0].group.examples[0];
    assert_eq!(
        example.new_reason,
        "rule `web` looks at facts of the run, and no record tells whose it was"
    );
    for (team, blocked) in [("web", 0), ("data", 1)] {
        let mut told = Log::default();
        told.session(&Who {
            user: "ada".into(),
            team: team.into(),
            ..Who::default()
        });
        told.lines.push_str(&log.lines);
        assert_eq!(counts(&replayed(&told, rules))[0], blocked, "{team}");
    }
}

#[test]
fn what_rested_on_a_grant_is_unchanged_while_its_rule_can_be_lifted() {
    let mut log = Log::default();
    let granted = serde_json::json!({"grants": ["g-1"]});
    log.add("GET https://a.test/x", "allowed", "docs", granted.clone());
    let liftable = "  - {id: docs, to: {host: a.test}, effect: deny, grantable: {by: rule}}\n";
    assert_eq!(counts(&replayed(&log, liftable)), [0, 0, 0, 0, 1]);
    let asked = "  - {id: docs, to: {host: a.test}, effect: ask}\n";
    assert_eq!(counts(&replayed(&log, asked)), [0, 0, 0, 0, 1]);
    let firm = "  - {id: docs, to: {host: a.test}, effect: deny}\n";
    assert_eq!(counts(&replayed(&log, firm)), [1, 0, 0, 0, 0]);
    let another = "  - {id: other, to: {host: a.test}, effect: ask}\n";
    assert_eq!(counts(&replayed(&log, another)), [0, 1, 0, 0, 0]);
    let both = format!(
        "{liftable}  - {{id: also, to: {{host: a.test, path: /x}}, effect: deny, grantable: {{by: person}}}}\n"
    );
    assert_eq!(
        counts(&replayed(&log, &both)),
        [1, 0, 0, 0, 0],
        "one grant lifts one rule"
    );
}

#[test]
fn streams_that_passed_unread_are_told_by_their_place_alone() {
    let mut log = Log::default();
    let stream = serde_json::json!({"kind": "tcp", "method": null, "path": null, "tls": null, "port": 5432});
    log.add("GET db.test", "allowed", "db", stream.clone());
    let tcp = "  - {id: db, to: {host: db.test, port: 5432, protocol: tcp}, effect: allow}\n";
    assert_eq!(counts(&replayed(&log, tcp)), [0, 0, 0, 0, 1]);
    assert_eq!(counts(&replayed(&log, READ_A)), [1, 0, 0, 0, 0]);
    let http = "  - {id: db, to: {host: db.test, port: 5432}, effect: allow}\n";
    assert_eq!(counts(&replayed(&log, http)), [0, 0, 0, 1, 0]);
    let mut refused = Log::default();
    refused.add("GET db.test", "denied", "default", stream);
    assert_eq!(
        counts(&replayed(&refused, http)),
        [0, 0, 0, 0, 1],
        "it was seen to be no HTTP"
    );
    assert_eq!(counts(&replayed(&refused, tcp)), [0, 0, 1, 0, 0]);
}

#[test]
fn a_time_window_is_judged_by_when_the_request_was_made() {
    let mut log = Log::default();
    log.add(
        "GET https://a.test/x",
        "allowed",
        "old",
        serde_json::json!({"at": "2026-05-01T10:00:00Z"}),
    );
    log.add(
        "GET https://a.test/x",
        "allowed",
        "old",
        serde_json::json!({"at": "2026-05-01T23:00:00Z"}),
    );
    let rules =
        "  - {id: day, to: {host: a.test}, effect: allow, during: {hours: \"07:00-20:00\", zone: UTC}}\n";
    assert_eq!(counts(&replayed(&log, rules)), [1, 0, 0, 0, 1]);
}

#[test]
fn what_rules_look_at_and_no_record_tells_is_not_guessed() {
    let mut log = Log::default();
    log.add("GET https://a.test/x", "allowed", "old", none());
    let condition =
        "  - {id: plain, to: {host: a.test, headers: {accept: \"application/*\"}}, effect: allow}\n";
    let report = replayed(&log, condition);
    assert_eq!(counts(&report), [0, 0, 0, 1, 0]);
    assert_eq!(
        report.rules.groups[0].group.examples[0].new_reason,
        "rule `plain` looks at header fields, which are not recorded"
    );
    let both = format!("{condition}{READ_A}");
    assert_eq!(
        counts(&replayed(&log, &both)),
        [0, 0, 0, 0, 1],
        "it is allowed in any case"
    );
    let denied = format!("{READ_A}  - {{id: no, to: {{host: a.test, query: {{q: [x]}}}}, effect: deny}}\n");
    assert_eq!(counts(&replayed(&log, &denied)), [0, 0, 0, 1, 0]);
    let elsewhere =
        format!("{READ_A}  - {{id: no, to: {{host: a.test, path: /y, query: {{q: [x]}}}}, effect: deny}}\n");
    assert_eq!(
        counts(&replayed(&log, &elsewhere)),
        [0, 0, 0, 0, 1],
        "its path is another"
    );
}
