//! Decisions of whole policies, told as sentences.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use sallyport_policy::{
    CanonicalPath, Decision, Destination, Grant, GrantRefused, HttpRequest, Moment, Overlay, Policy,
    PolicyText, Protocol, Remedy, Request, Wanted, Who,
};

const BASE: &str = r#"
version: 1
name: acme/base
default: deny
sets:
  git-hosts: [github.test, api.github.test]
credentials:
  github:
    from: {store: github}
    hosts: [github.test, api.github.test]
    in: [bearer, basic]
    env: GITHUB_TOKEN
rules:
  - id: read-github
    to: {host: git-hosts, methods: [GET, HEAD]}
    use: [github]
    effect: allow
  - id: merge
    to: {host: api.github.test, methods: [PUT], path: "/repos/{owner}/{repo}/pulls/{n}/merge"}
    effect: ask
    grant: {uses: 1, expires: 1h}
    use: [github]
    hint: Open a pull request; a maintainer merges it.
  - id: docs
    to: {host: ["docs.test", "*.docs.test"], methods: [GET]}
    effect: deny
    grantable: {by: rule, uses: 500, expires: 8h}
  - id: database
    to: {host: db.test, port: 5432, protocol: tcp}
    effect: allow
  - id: pinned
    to: {host: pinned.test, protocol: tls}
    effect: allow
  - id: inside
    to: {host: [git.corp.test, 10.0.0.0/8], port: [443, 8443], private: true}
    effect: allow
"#;

fn policy(text: &str) -> Policy {
    let text = PolicyText {
        name: "policy.yaml".into(),
        text: text.into(),
    };
    match Policy::compile(&[text]) {
        Ok(policy) => policy,
        Err(problems) => panic!(
            "{}",
            problems.iter().map(|p| format!("{p}\n")).collect::<String>()
        ),
    }
}

fn now() -> jiff::Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn http(method: &str, place: &str, path: &str) -> Request {
    Request {
        destination: Destination::parse(place).unwrap(),
        moment: Moment::Http(HttpRequest {
            method: method.into(),
            path: CanonicalPath::parse(path).unwrap(),
            query: None,
            tls: true,
            headers: Vec::new(),
            pushed: None,
        }),
    }
}

fn connect(place: &str) -> Request {
    Request {
        destination: Destination::parse(place).unwrap(),
        moment: Moment::Connect,
    }
}

fn opaque(place: &str) -> Request {
    Request {
        destination: Destination::parse(place).unwrap(),
        moment: Moment::Opaque,
    }
}

fn ask(policy: &Policy, request: &Request, grants: &[Grant]) -> Decision {
    policy.decide(
        request,
        &Who::default(),
        &Overlay {
            grants: grants.to_vec(),
        },
        now(),
    )
}

fn word(decision: &Decision) -> String {
    match decision {
        Decision::Allow(permit) => format!("allow {}", permit.rule()),
        Decision::Inspect => "inspect".into(),
        Decision::Ask(refusal) => format!("ask {}", refusal.reason.rule),
        Decision::Deny(refusal) => format!("deny {}", refusal.reason.rule),
    }
}

#[test]
fn an_allowed_request_gets_a_permit_with_its_credential() {
    let policy = policy(BASE);
    let Decision::Allow(permit) = ask(&policy, &http("GET", "api.github.test:443", "/x"), &[]) else {
        panic!()
    };
    assert_eq!(permit.rule(), "read-github");
    assert_eq!(permit.credentials(), ["github"]);
    assert_eq!(permit.protocol(), Protocol::Http);
    assert!(permit.grants().is_empty());
}

#[test]
fn plain_http_gets_no_credential() {
    let policy = policy(&BASE.replace("methods: [GET, HEAD]}", "port: [80, 443], methods: [GET, HEAD]}"));
    let mut request = http("GET", "github.test:80", "/x");
    if let Moment::Http(http) = &mut request.moment {
        http.tls = false;
    }
    let Decision::Allow(permit) = ask(&policy, &request, &[]) else {
        panic!()
    };
    assert!(permit.credentials().is_empty());
}

#[test]
fn what_no_rule_names_is_refused_with_a_readable_reason() {
    let policy = policy(BASE);
    let Decision::Deny(refusal) = ask(&policy, &http("GET", "other.test:443", "/x"), &[]) else {
        panic!()
    };
    assert_eq!(refusal.reason.rule, "default");
    assert_eq!(refusal.reason.text, "no rule allows `GET https://other.test/x`");
    let Decision::Deny(refusal) = ask(&policy, &http("POST", "github.test:443", "/x"), &[]) else {
        panic!()
    };
    assert!(
        refusal
            .reason
            .text
            .contains("rule `read-github` allows this host for GET, HEAD only"),
        "{}",
        refusal.reason.text
    );
}

#[test]
fn connecting_is_looked_into_where_a_rule_may_allow_later() {
    let policy = policy(BASE);
    for (place, expected) in [
        ("github.test:443", "inspect"),
        ("github.test:8443", "deny default"),
        ("other.test:443", "deny default"),
        ("db.test:5432", "allow database"),
        ("db.test:443", "deny default"),
        ("pinned.test:443", "allow pinned"),
        ("docs.test:443", "deny default"),
        ("evil-github.test:443", "deny default"),
    ] {
        assert_eq!(word(&ask(&policy, &connect(place), &[])), expected, "{place}");
    }
    assert_eq!(
        word(&ask(&policy, &opaque("db.test:5432"), &[])),
        "allow database"
    );
    assert_eq!(
        word(&ask(&policy, &opaque("github.test:443"), &[])),
        "deny default"
    );
    assert_eq!(
        word(&ask(&policy, &opaque("pinned.test:443"), &[])),
        "deny default"
    );
    let Decision::Allow(permit) = ask(&policy, &connect("pinned.test:443"), &[]) else {
        panic!()
    };
    assert_eq!(permit.protocol(), Protocol::Tls);
}

#[test]
fn asking_is_refused_with_a_hint_until_a_person_agrees() {
    let policy = policy(BASE);
    let request = http("PUT", "api.github.test:443", "/repos/acme/web/pulls/7/merge");
    let Decision::Ask(refusal) = ask(&policy, &request, &[]) else {
        panic!()
    };
    assert_eq!(refusal.remedy, Remedy::AskPerson);
    assert_eq!(
        refusal.hint.as_deref(),
        Some("Open a pull request; a maintainer merges it.")
    );
    let wanted = Wanted {
        credential: None,
        host: "api.github.test".into(),
        port: 443,
        method: Some("PUT".into()),
        path: Some("/repos/acme/web/pulls/7/merge".into()),
    };
    assert_eq!(
        policy.grant(&wanted, &Who::default(), now()),
        Err(GrantRefused::NeedsPerson {
            rule: "merge".into(),
            approvers: Vec::new()
        })
    );
    let mut grant = policy
        .grant_by_person(&wanted, &Who::default(), now(), "ann")
        .unwrap();
    grant.id = "g1".into();
    assert_eq!((grant.uses, grant.by.as_str()), (Some(1), "ann"));
    let Decision::Allow(permit) = ask(&policy, &request, &[grant.clone()]) else {
        panic!()
    };
    assert_eq!(
        (permit.grants(), permit.credentials()),
        (&["g1".to_owned()][..], vec!["github"])
    );
    let other = http("PUT", "api.github.test:443", "/repos/acme/web/pulls/8/merge");
    assert_eq!(word(&ask(&policy, &other, &[grant])), "ask merge");
}

#[test]
fn a_grant_by_rule_lifts_exactly_its_rule_as_long_as_it_lives() {
    let policy = policy(BASE);
    let wanted = Wanted {
        credential: None,
        host: "Docs.TEST.".into(),
        port: 443,
        method: None,
        path: None,
    };
    let mut grant = policy.grant(&wanted, &Who::default(), now()).unwrap();
    assert_eq!(
        (grant.host.as_str(), grant.uses, grant.rule.as_str()),
        ("docs.test", Some(500), "docs")
    );
    assert_eq!(grant.expires_at, "2026-11-30T20:00:00Z".parse().unwrap());
    grant.id = "g".into();
    let live = [grant.clone()];
    assert_eq!(word(&ask(&policy, &connect("docs.test:443"), &live)), "inspect");
    assert_eq!(
        word(&ask(&policy, &http("GET", "docs.test:443", "/a"), &live)),
        "allow docs"
    );
    assert_eq!(
        word(&ask(&policy, &http("POST", "docs.test:443", "/a"), &live)),
        "deny default"
    );
    assert_eq!(
        word(&ask(&policy, &http("GET", "docs.test:8443", "/a"), &live)),
        "deny docs"
    );
    assert_eq!(
        word(&ask(&policy, &http("GET", "x.docs.test:443", "/a"), &live)),
        "deny docs"
    );
    let used_up = [Grant {
        credential: None,
        uses: Some(0),
        ..grant.clone()
    }];
    assert_eq!(
        word(&ask(&policy, &http("GET", "docs.test:443", "/a"), &used_up)),
        "deny docs"
    );
    let later = now().checked_add(jiff::SignedDuration::from_hours(8)).unwrap();
    let decision = policy.decide(
        &http("GET", "docs.test:443", "/a"),
        &Who::default(),
        &Overlay {
            grants: live.to_vec(),
        },
        later,
    );
    assert_eq!(word(&decision), "deny docs");
    let narrow = [Grant {
        credential: None,
        path: Some("/a/**".into()),
        methods: vec!["GET".into()],
        ..grant
    }];
    assert_eq!(
        word(&ask(&policy, &http("GET", "docs.test:443", "/a/b"), &narrow)),
        "allow docs"
    );
    assert_eq!(
        word(&ask(&policy, &http("GET", "docs.test:443", "/b"), &narrow)),
        "deny docs"
    );
    assert_eq!(
        word(&ask(&policy, &http("GET", "docs.test:443", "/a//b"), &narrow)),
        "deny docs"
    );
}

#[test]
fn what_is_wanted_is_answered_by_what_stands_in_the_way() {
    let policy = policy(BASE);
    let wanted = |host: &str| Wanted {
        credential: None,
        host: host.into(),
        port: 443,
        method: None,
        path: None,
    };
    let grant = |host: &str| policy.grant(&wanted(host), &Who::default(), now());
    assert_eq!(
        grant("github.test"),
        Err(GrantRefused::AlreadyAllowed {
            rule: "read-github".into()
        })
    );
    assert_eq!(
        grant("other.test"),
        Err(GrantRefused::NotGrantable {
            rule: "default".into()
        })
    );
    assert!(matches!(grant("a b"), Err(GrantRefused::Malformed { .. })));
    let path = Wanted {
        credential: None,
        path: Some("/a/**".into()),
        ..wanted("docs.test")
    };
    assert!(matches!(
        policy.grant(&path, &Who::default(), now()),
        Err(GrantRefused::Malformed { .. })
    ));
}

#[test]
fn private_addresses_need_a_rule_that_names_them() {
    let policy = policy(BASE);
    let Decision::Allow(inside) = ask(&policy, &http("GET", "git.corp.test:443", "/"), &[]) else {
        panic!()
    };
    assert_eq!(inside.admits_address("10.1.2.3".parse().unwrap()), Ok(()));
    assert_eq!(inside.admits_address("::ffff:10.1.2.3".parse().unwrap()), Ok(()));
    assert_eq!(inside.admits_address("8.8.8.8".parse().unwrap()), Ok(()));
    assert!(
        inside
            .admits_address("192.168.0.1".parse().unwrap())
            .unwrap_err()
            .contains("private address")
    );
    assert!(
        inside
            .admits_address("169.254.169.254".parse().unwrap())
            .unwrap_err()
            .contains("metadata")
    );
    let Decision::Allow(outside) = ask(&policy, &http("GET", "github.test:443", "/"), &[]) else {
        panic!()
    };
    assert!(outside.admits_address("10.1.2.3".parse().unwrap()).is_err());
    assert_eq!(outside.admits_address("203.0.113.7".parse().unwrap()), Ok(()));
    assert_eq!(
        word(&ask(&policy, &http("GET", "10.1.2.3:8443", "/"), &[])),
        "allow inside"
    );
    assert_eq!(
        word(&ask(&policy, &http("GET", "11.1.2.3:8443", "/"), &[])),
        "deny default"
    );
}
