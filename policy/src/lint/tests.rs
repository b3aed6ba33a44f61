//! Lints told as sentences, and that none is wrong.
use crate::{Policy, PolicyText};
use proptest::prelude::*;

fn policy(rules: &str) -> Policy {
    let text = PolicyText {
        name: "p.yaml".into(),
        text: format!("version: 1\n{rules}"),
    };
    Policy::compile(&[text]).unwrap_or_else(|problems| panic!("{}{rules}", problems[0]))
}

fn now() -> jiff::Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn lints(rules: &[&str]) -> Vec<String> {
    let rules: String = rules.iter().map(|rule| format!("  - {{{rule}}}\n")).collect();
    let found = policy(&format!("rules:\n{rules}")).lints(now());
    found.into_iter().map(|problem| problem.message).collect()
}

#[test]
fn a_rule_that_several_others_refuse_together_is_named_with_them() {
    assert_eq!(
        lints(&[
            "id: a, to: {host: a.test, methods: [GET, PUT]}, effect: allow",
            "id: b, to: {host: a.test, methods: [GET]}, effect: deny",
            "id: c, to: {host: '*.test', methods: [PUT]}, effect: deny",
        ]),
        ["rule `a` never decides: rule `b`, rule `c` refuse all that it names"]
    );
    assert!(
        lints(&[
            "id: a, to: {host: a.test}, effect: allow",
            "id: b, to: {host: a.test, methods: [GET]}, effect: deny",
        ])
        .is_empty()
    );
}

#[test]
fn a_rule_that_can_never_match_is_named() {
    assert_eq!(
        lints(&["id: a, to: {host: 10.0.0.0/8}, effect: allow"]),
        ["rule `a` can never match"]
    );
}

#[test]
fn a_rule_that_says_what_another_says_is_named_with_both_places() {
    assert_eq!(
        lints(&[
            "id: a, to: {host: '*.a.test', path: /x/**}, effect: allow",
            "id: b, to: {host: b.a.test, path: /x/y, methods: [GET]}, effect: allow",
        ]),
        ["rule `b` changes nothing: rule `a` (p.yaml:3:10) says all of it already"]
    );
    assert!(
        lints(&[
            "id: a, to: {host: b.test}, effect: deny",
            "id: b, to: {host: b.test}, effect: deny, hint: use the mirror",
        ])
        .iter()
        .all(|message| !message.starts_with("rule `b`"))
    );
}

fn rule() -> impl Strategy<Value = String> {
    let host = prop::sample::select(&["a.test", "'*.test'", "b.a.test", "'*'", "10.0.0.0/8"][..]);
    let fine = prop::sample::select(
        &[
            "",
            ", methods: [GET]",
            ", path: /a/**",
            ", path: /a, port: 80",
            ", port: '1-500'",
        ][..],
    );
    let effect = prop::sample::select(&["allow", "deny", "ask"][..]);
    (host, fine, effect)
        .prop_map(|(host, fine, effect)| format!("to: {{host: {host}{fine}}}, effect: {effect}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn removing_a_rule_that_is_named_changes_no_answer(rules in prop::collection::vec(rule(), 1..6)) {
        let text = |without: Option<&str>| {
            let lines = rules.iter().enumerate().map(|(number, rule)| (format!("r{number}"), rule));
            let kept = lines.filter(|(id, _)| without != Some(id));
            let lines: String = kept.map(|(id, rule)| format!("  - {{id: {id}, {rule}}}\n")).collect();
            format!("rules:\n{}", if lines.is_empty() { "  []\n".to_owned() } else { lines })
        };
        let whole = policy(&text(None));
        for problem in whole.lints(now()) {
            let id = problem.message.split('`').nth(1).unwrap().to_owned();
            let without = policy(&text(Some(&id)));
            let diff = whole.diff(&without, now());
            prop_assert!(diff.is_empty(), "{}\n{diff}\n{}", problem.message, text(None));
        }
    }
}
