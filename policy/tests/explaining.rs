//! What an explanation tells: what would have changed the answer, and what the agent hears. Whole policies, told as sentences.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use sallyport_policy::{Explanation, Overlay, Policy, PolicyText, Request, Who};

const POLICY: &str = r#"
version: 1
rules:
  - {id: read, to: {host: [docs.test, api.test], methods: [GET, HEAD]}, effect: allow}
  - {id: items, to: {host: api.test, methods: [POST], path: "/v1/{kind}/items"}, effect: allow}
  - {id: admin, to: {host: api.test, port: 8443}, who: {team: "ops-*"}, effect: allow}
  - {id: office, to: {host: desk.test}, during: {days: mon-fri, hours: "07:00-20:00", zone: Europe/Berlin}, effect: allow}
  - {id: no-private, to: {host: docs.test, path: "/private/**"}, effect: deny, hint: Read the public pages.}
  - {id: no-drafts, to: {host: docs.test, path: "/private/drafts/**"}, effect: deny, grantable: {by: rule}}
  - {id: pages, to: {host: "*.docs.test"}, effect: allow}
  - {id: more-pages, to: {host: "*.docs.test"}, effect: allow}
  - {id: find, to: {host: find.test, query: {q: "*", lang: [de, en]}, headers: {accept: "application/*"}}, effect: allow}
  - {id: shop, to: {host: db.test, protocol: postgres, database: "shop*", user: agent}, effect: allow}
  - {id: build, to: {host: build.test, protocol: ssh, user: [agent, "ci-*"]}, effect: allow}
"#;

/// A Sunday.
const SUNDAY: &str = "2026-11-29T12:00:00Z";

fn explain(request: &str) -> Explanation {
    let text = PolicyText {
        name: "policy.yaml".into(),
        text: POLICY.into(),
    };
    let policy = match Policy::compile(&[text]) {
        Ok(policy) => policy,
        Err(problems) => panic!("{problems:?}"),
    };
    policy.explain(
        &Request::parse(request).unwrap(),
        &Who::default(),
        &Overlay::default(),
        SUNDAY.parse().unwrap(),
    )
}

fn changes(request: &str) -> Vec<String> {
    let told = explain(request).changes;
    told.into_iter()
        .map(|change| {
            let rule = change.rule.unwrap_or_default();
            format!("{}: {} {rule}", change.what, change.decision)
        })
        .collect()
}

#[test]
fn another_method_or_path_that_would_have_passed_is_told() {
    assert_eq!(
        changes("POST https://api.test/v1/books"),
        [
            "with GET or HEAD: allow read",
            "on path `/v1/{kind}/items`: allow items",
            "on port 8443 and for team `ops-*`: allow admin",
        ]
    );
}

#[test]
fn the_hours_of_a_rule_are_told_to_those_who_come_outside_them() {
    assert_eq!(
        changes("GET https://desk.test/"),
        ["within mon, tue, wed, thu, fri, 07:00-20:00 Europe/Berlin: allow office"]
    );
}

#[test]
fn rules_in_the_way_are_named_together_where_it_takes_all_of_them() {
    assert_eq!(
        changes("GET https://docs.test/private/a"),
        ["without rule `no-private`: allow read"]
    );
    assert_eq!(
        changes("GET https://docs.test/private/drafts/a"),
        ["without rules `no-private` and `no-drafts`: allow read"]
    );
}

#[test]
fn what_a_permission_hangs_on_is_told() {
    assert_eq!(
        changes("GET https://docs.test/a"),
        ["without rule `read`: deny default"]
    );
    assert_eq!(
        changes("GET https://x.docs.test/a"),
        ["without rules `pages` and `more-pages`: deny default"]
    );
}

#[test]
fn nothing_is_promised_that_would_not_be_so() {
    assert_eq!(changes("GET https://other.test/"), [] as [String; 0]);
    // Another method would not help: the path is denied.
    assert_eq!(changes("PUT https://docs.test/private/a"), [] as [String; 0]);
}

#[test]
fn what_the_agent_is_told_stands_at_the_end() {
    let refused = explain("GET https://docs.test/private/a");
    let told = refused.told.clone().unwrap();
    assert_eq!(
        told,
        "rule `no-private` denies `GET https://docs.test/private/a` (rule `no-private`); Read the public pages; \
         asking for access cannot change this"
    );
    let text = refused.to_string();
    assert!(
        text.contains("what would have changed it:\n  without rule `no-private`: allow, by `read`\n"),
        "{text}"
    );
    assert!(
        text.contains(&format!("the agent is told:\n  {told}\n")),
        "{text}"
    );
    let allowed = explain("GET https://docs.test/a");
    assert_eq!(allowed.told, None);
    let json = serde_json::to_value(&allowed).unwrap();
    assert_eq!(json["changes"][0]["what"], "without rule `read`");
}

#[test]
fn another_condition_or_log_in_that_would_have_passed_is_told() {
    assert_eq!(
        changes("GET https://find.test/?lang=fr"),
        ["with header `accept: application/*` and with query `q=*&lang=de`: allow find"]
    );
    assert_eq!(
        changes("postgres root@db.test:5432/other"),
        ["for database `shop*` and as user `agent`: allow shop"]
    );
    assert_eq!(
        changes("ssh root@build.test:22"),
        ["as user `agent`: allow build"]
    );
}
