//! What a run did becomes a tidy policy, which allows that and compiles without a remark.
#![expect(clippy::panic, reason = "helpers of tests may fail the test")]

mod log;

use log::{Log, none};
use proptest::prelude::*;
use sallyport_policy::{Learner, People, Policy, PolicyText, Proposal, Replay, Who};

fn compiled(text: &str) -> Policy {
    let file = PolicyText {
        name: "proposal.yaml".to_owned(),
        text: text.to_owned(),
    };
    Policy::compile(&[file]).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"))
}

fn learned(log: &Log, base: Option<&str>, denied: bool) -> Proposal {
    let learner = Learner::new(base.map(compiled), denied);
    let learned = learner.lines(&log.lines, &People::default());
    learner.propose(&learned, "run-1")
}

/// The proposal has no remark, holds its own tests, and allows all of the log but what it says to leave out.
fn holds(log: &Log, proposal: &Proposal) {
    let policy = compiled(&proposal.yaml);
    assert!(policy.warnings().is_empty(), "{:#?}", policy.warnings());
    let tests = policy.run_tests();
    assert!(
        tests.failures.is_empty(),
        "{:#?}\n{}",
        tests.failures,
        proposal.yaml
    );
    assert!(tests.total >= proposal.rules);
    let replay = Replay::new(policy, 1);
    let report = replay.report(replay.lines(&log.lines, &People::default()));
    assert_eq!(
        report.counts.blocked, proposal.left_out,
        "{report}\n{}",
        proposal.yaml
    );
    assert_eq!(report.counts.untold, 0);
}

fn observed(log: &mut Log, url: &str) {
    log.add(url, "observed", "default", none());
}

#[test]
fn a_run_becomes_a_tidy_policy() {
    let mut log = Log::default();
    for number in 0..12 {
        observed(
            &mut log,
            &format!("GET https://api.test/repos/acme/web/pulls/{number}"),
        );
        observed(
            &mut log,
            &format!(
                "GET https://files.test/packages/p{}x/index.json",
                ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"][number]
            ),
        );
    }
    observed(&mut log, "HEAD https://api.test/repos/acme/web/pulls/1");
    observed(&mut log, "POST https://api.test/repos/acme/web/pulls");
    observed(&mut log, "PATCH https://api.test/repos/acme/web/pulls");
    for name in ["one", "two", "three"] {
        observed(&mut log, &format!("GET https://{name}.cdn.acme.test/lib.js"));
        observed(&mut log, &format!("GET https://{name}.github.io/lib.js"));
        observed(&mut log, &format!("GET https://{name}.test/lib.css"));
    }
    observed(&mut log, "GET https://10.0.0.1/admin");
    observed(&mut log, "GET https://api.test/a//b");
    log.add(
        "GET db.test",
        "observed",
        "default",
        serde_json::json!({"kind": "tcp", "method": null, "path": null, "tls": null, "port": 5432}),
    );
    log.add(
        "GET https://plain.test/x",
        "observed",
        "default",
        serde_json::json!({"tls": false, "port": 80}),
    );
    log.add("GET https://no.test/x", "denied", "default", none());
    let proposal = learned(&log, None, false);
    log::golden("learn.yaml", &proposal.yaml);
    holds(&log, &proposal);
}

#[test]
fn what_the_base_refuses_is_left_out_and_what_it_allows_is_not_said_again() {
    let base = "version: 1\nmode: observe\nrules:\n  \
        - {id: paste, to: {host: paste.test}, effect: deny}\n  \
        - {id: asked, to: {host: ask.test}, effect: ask}\n  \
        - {id: read-new-test, to: {host: known.test, methods: [GET]}, effect: allow}\n";
    let mut log = Log::default();
    for host in ["paste", "ask", "known", "new"] {
        log.add(
            &format!("GET https://{host}.test/x"),
            "observed",
            "default",
            none(),
        );
    }
    let proposal = learned(&log, Some(base), false);
    assert_eq!((proposal.rules, proposal.requests, proposal.left_out), (1, 1, 2));
    for part in [
        "# 1 requests are allowed already",
        "#   GET https://paste.test/x (1): rule `paste` refuses it",
        "#   GET https://ask.test/x (1): rule `asked` refuses it",
        "- id: read-new-test-2",
    ] {
        assert!(proposal.yaml.contains(part), "{part}\n{}", proposal.yaml);
    }
    assert!(compiled(&proposal.yaml).warnings().is_empty());
}

#[test]
fn what_was_refused_is_wanted_only_where_it_is_asked_for() {
    let mut log = Log::default();
    log.session(&Who::default());
    log.add("GET https://a.test/x", "denied", "default", none());
    assert_eq!(learned(&log, None, false).rules, 0);
    assert!(compiled(&learned(&log, None, false).yaml).warnings().is_empty());
    assert_eq!(learned(&log, None, true).rules, 1);
}

#[test]
fn a_stream_beside_http_is_left_out_since_it_would_pass_all_unread() {
    let mut log = Log::default();
    observed(&mut log, "GET https://a.test/x");
    log.add(
        "GET a.test",
        "observed",
        "default",
        serde_json::json!({"kind": "tcp", "method": null, "path": null, "tls": null}),
    );
    let proposal = learned(&log, None, false);
    assert_eq!((proposal.rules, proposal.left_out), (1, 1), "{}", proposal.yaml);
    assert!(proposal.yaml.contains("passes unread"), "{}", proposal.yaml);
}

proptest! {
    #[test]
    fn any_run_is_allowed_by_what_is_proposed_for_it(
        requests in proptest::collection::vec(
            ("(GET|HEAD|POST|PUT|DELETE)", "[a-d]{1,2}(\\.[a-c]{1,2}){0,2}\\.test|203\\.0\\.113\\.[1-9]", "(/([a-z]{1,3}|[0-9]{1,4}|[a-f0-9]{8}|\\*|x;y|))*", 0..3u8),
            1..60,
        )
    ) {
        let mut log = Log::default();
        for (method, host, path, kind) in &requests {
            let path = if path.is_empty() { "/" } else { path };
            let more = match kind {
                0 => serde_json::json!({"port": 8080, "tls": false}),
                _ => none(),
            };
            log.add(&format!("{method} https://{host}{path}"), "observed", "default", more);
        }
        let proposal = learned(&log, None, false);
        holds(&log, &proposal);
        let others = Replay::new(compiled(&proposal.yaml), 0);
        let mut strangers = Log::default();
        strangers.add("GET https://stranger.test/", "denied", "default", none());
        strangers.add("GET https://evil-a.b.test/", "denied", "default", none());
        let report = others.report(others.lines(&strangers.lines, &People::default()));
        let merged = proposal.yaml.contains("*.b.test");
        prop_assert!(report.counts.allowed == 0 || (merged && report.counts.allowed == 1));
    }
}
