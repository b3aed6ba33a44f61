//! Credentials that must be asked for: lent by the policy or by a person, at the hosts that they are bound to.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use sallyport_policy::{
    CanonicalPath, Decision, Destination, Grant, GrantRefused, HttpRequest, Lender, Moment, Overlay, Permit,
    Policy, PolicyText, Request, Wanted, Who,
};

const POLICY: &str = r#"
version: 1
name: acme/deploy
credentials:
  forge:
    from: {store: forge}
    hosts: [git.test]
    in: [bearer, basic]
    env: FORGE_TOKEN
    for: clones and pushes
    user: acme-bot
  deploy:
    from: {store: deploy}
    hosts: [registry.test, "*.registry.test", other.test]
    in: [bearer]
    grantable: {by: rule, expires: 2h}
  production:
    from: {store: production}
    hosts: [registry.test]
    in: ["header:x-key"]
    grantable: {by: person, approvers: [team:sre]}
rules:
  - id: git
    to: {host: git.test}
    use: [forge]
    effect: allow
  - id: images
    to: {host: [registry.test, "*.registry.test"], port: [443, 8443]}
    who: {team: web}
    use: [deploy, production]
    effect: allow
"#;

fn policy() -> Policy {
    compile(POLICY).unwrap()
}

fn compile(text: &str) -> Result<Policy, String> {
    let text = PolicyText {
        name: "p.yaml".into(),
        text: text.into(),
    };
    Policy::compile(&[text]).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n")
    })
}

fn web() -> Who {
    Who {
        team: "web".into(),
        ..Who::default()
    }
}

fn now() -> jiff::Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn wanted(credential: &str, host: &str) -> Wanted {
    Wanted {
        host: host.into(),
        port: 443,
        method: None,
        path: None,
        credential: Some(credential.into()),
    }
}

fn get(host: &str) -> Request {
    Request {
        destination: Destination::parse(host).unwrap(),
        moment: Moment::Http(HttpRequest::new(
            "GET",
            CanonicalPath::parse("/").unwrap(),
            None,
            true,
        )),
    }
}

fn permit(policy: &Policy, host: &str, grants: &[Grant], at: jiff::Timestamp) -> Permit {
    let overlay = Overlay {
        grants: grants.to_vec(),
    };
    match policy.decide(&get(host), &web(), &overlay, at) {
        Decision::Allow(permit) => permit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_credential_that_must_be_asked_for_goes_out_only_while_it_is_lent_and_only_where() {
    let policy = policy();
    let before = permit(&policy, "registry.test:443", &[], now());
    assert!(before.credentials().is_empty());
    assert_eq!(before.withheld(), ["deploy", "production"]);
    assert!(before.withholds("deploy") && !before.carries("deploy"));
    let explained = policy
        .explain(&get("registry.test:443"), &web(), &Overlay::default(), now())
        .to_string();
    assert!(
        explained.contains("credentials, once asked for: deploy, production"),
        "{explained}"
    );
    let grant = policy
        .grant(&wanted("deploy", "Registry.TEST."), &web(), now())
        .unwrap();
    assert_eq!(grant.credential.as_deref(), Some("deploy"));
    assert_eq!(
        (grant.host.as_str(), grant.by.as_str()),
        ("registry.test", "policy")
    );
    assert_eq!(grant.expires_at, "2026-11-30T14:00:00Z".parse().unwrap());
    let lent = [grant];
    for (host, at, carries) in [
        ("registry.test:443", now(), true),
        ("registry.test:8443", now(), true),
        ("a.registry.test:443", now(), false),
        ("registry.test:443", lent[0].expires_at, false),
    ] {
        let permit = permit(&policy, host, &lent, at);
        assert_eq!(permit.carries("deploy"), carries, "{host} at {at}");
        assert!(!permit.carries("production"), "{host}");
        assert_eq!(permit.withholds("deploy"), !carries);
    }
    let forge = permit(&policy, "git.test:443", &[], now());
    assert_eq!((forge.credentials(), forge.withheld()), (vec!["forge"], vec![]));
}

#[test]
fn a_person_lends_what_the_policy_does_not() {
    let policy = policy();
    let wanted = wanted("production", "registry.test");
    assert_eq!(
        policy.grant(&wanted, &web(), now()),
        Err(GrantRefused::CredentialNeedsPerson {
            credential: "production".into(),
            approvers: vec!["team:sre".into()]
        })
    );
    let grant = policy.grant_by_person(&wanted, &web(), now(), "ann").unwrap();
    assert_eq!((grant.by.as_str(), grant.rule.as_str()), ("ann", ""));
    assert!(permit(&policy, "registry.test:443", &[grant], now()).carries("production"));
    assert_eq!(policy.lender("production"), Some(Lender::Person));
    assert_eq!(policy.lender("deploy"), Some(Lender::Policy));
    assert_eq!(policy.lender("forge"), None);
    assert_eq!(policy.ports_of("deploy"), [443, 8443]);
    assert!(policy.is_used_throughout("forge"));
    let more =
        format!("{POLICY}  - {{id: anonymous, to: {{host: \"*.test\", methods: [GET]}}, effect: allow}}\n");
    let wider = compile(&more).unwrap();
    assert!(
        !wider.is_used_throughout("forge"),
        "a rule allows the host without it"
    );
}

#[test]
fn what_cannot_be_lent_says_why() {
    let policy = policy();
    let ask = |credential: &str, host: &str, who: &Who| {
        policy
            .grant(&wanted(credential, host), who, now())
            .unwrap_err()
            .to_string()
    };
    for (credential, host, part) in [
        ("forge", "git.test", "may be used at `git.test` already"),
        ("deploy", "elsewhere.test", "it is bound to `registry.test`"),
        ("deploy", "other.test", "no rule for this run takes it there"),
        (
            "nothing\u{1b}",
            "git.test",
            "there are `forge`, `deploy`, `production`",
        ),
        ("deploy", "a b", "a b"),
    ] {
        let told = ask(credential, host, &web());
        assert!(told.contains(part), "{told}");
        assert!(!told.contains('\u{1b}'), "{told:?}");
    }
    let told = ask("deploy", "registry.test", &Who::default());
    assert!(told.contains("no rule for this run"), "{told}");
}

#[test]
fn terms_texts_and_fields_of_a_credential_are_checked() {
    let credential = |more: &str| {
        format!(
            "version: 1\ncredentials:\n  a: {{from: {{store: a}}, hosts: [a.test], in: [bearer], {more}}}\n\
             rules:\n  - {{id: r, to: {{host: a.test}}, use: [a], effect: allow}}\n"
        )
    };
    compile(&credential(
        "for: what it is for, user: bot, grantable: {by: rule}",
    ))
    .unwrap();
    for (more, part) in [
        ("grantable: {expires: 1h}", "does not say by whom"),
        ("grantable: {by: rule, uses: 3}", "has no field `uses`"),
        ("for: ''", "`for` is empty"),
        ("for: \"a\\tb\"", "`for` is no text of one line"),
        ("user: \"a\\nb\"", "`user` is no text of one line"),
    ] {
        let told = compile(&credential(more)).unwrap_err();
        assert!(told.contains(part), "{more}: {told}");
    }
}
