//! Policies of several layers: the ceiling binds, a lower layer narrows, and does more only where it is left to it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use sallyport_policy::{
    Decision, Grant, GrantRefused, Layer, LayerTexts, Overlay, Permit, Policy, PolicyText, Problem, Protocol,
    Remedy, Request, Wanted, Who,
};

const ORGANISATION: &str = r#"
version: 1
credentials:
  packages: {from: {store: packages}, hosts: [packages.test], in: [bearer], env: PACKAGES}
rules:
  - {id: packages, to: {host: packages.test}, use: [packages], effect: allow}
  - {id: code, to: {host: "*.code.test", methods: [GET, POST]}, effect: allow, limit: {connections: 4}}
  - {id: inside, to: {host: [git.corp.test, 10.0.0.0/8], private: true}, effect: allow}
  - {id: pinned, to: {host: pinned.test, protocol: tls}, effect: allow}
  - {id: no-paste, to: {host: paste.test}, effect: deny, widen: [team]}
  - {id: no-mail, to: {host: mail.test}, effect: deny}
  - {id: releases, to: {host: releases.test}, effect: ask, grant: {expires: 1h, approvers: [team:leads]}, widen: [run]}
"#;

fn layer(layer: Layer, text: &str) -> LayerTexts {
    let name = format!("{layer}.yaml");
    LayerTexts {
        layer,
        texts: vec![PolicyText {
            name,
            text: text.into(),
        }],
    }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn compile(layers: &[(Layer, &str)]) -> Policy {
    let layers: Vec<LayerTexts> = layers.iter().map(|(own, text)| layer(*own, text)).collect();
    Policy::compile_layers(&layers).unwrap_or_else(|problems| panic!("{}", listed(&problems)))
}

fn problems(layers: &[(Layer, &str)]) -> String {
    let layers: Vec<LayerTexts> = layers.iter().map(|(own, text)| layer(*own, text)).collect();
    match Policy::compile_layers(&layers) {
        Ok(policy) => panic!("it compiles, with {}", listed(policy.warnings())),
        Err(problems) => listed(&problems),
    }
}

fn under_organisation(team: &str) -> Policy {
    compile(&[(Layer::Organisation, ORGANISATION), (Layer::Team, team)])
}

fn decide(policy: &Policy, request: &str, grants: &[Grant]) -> Decision {
    let overlay = Overlay {
        grants: grants.to_vec(),
    };
    let now = jiff::Timestamp::UNIX_EPOCH;
    policy.decide(&Request::parse(request).unwrap(), &Who::default(), &overlay, now)
}

/// The answer and its rule, in two words.
fn said(policy: &Policy, request: &str) -> String {
    match decide(policy, request, &[]) {
        Decision::Allow(permit) => match permit.observed() {
            Some(refusal) => format!("observe {}", refusal.reason.rule),
            None => format!("allow {}", permit.rule()),
        },
        Decision::Inspect => "inspect".into(),
        Decision::Ask(refusal) => format!("ask {}", refusal.reason.rule),
        Decision::Deny(refusal) => format!("deny {}", refusal.reason.rule),
    }
}

fn permit(policy: &Policy, request: &str) -> Permit {
    match decide(policy, request, &[]) {
        Decision::Allow(permit) => permit,
        other => panic!("{request}: {other:?}"),
    }
}

fn wanted(host: &str) -> Wanted {
    Wanted {
        credential: None,
        host: host.into(),
        port: 443,
        method: None,
        path: None,
    }
}

fn grant(policy: &Policy, host: &str) -> Result<Grant, GrantRefused> {
    policy.grant(&wanted(host), &Who::default(), jiff::Timestamp::UNIX_EPOCH)
}

#[test]
fn a_lower_layer_narrows_what_the_ceiling_allows() {
    let policy = under_organisation(
        "version: 1\nrules: [{id: team-code, to: {host: www.code.test, methods: [GET]}, effect: allow}, {id: mail, to: {host: mail.test}, effect: allow}]",
    );
    assert_eq!(said(&policy, "GET https://www.code.test/"), "allow team-code");
    assert_eq!(said(&policy, "connect www.code.test:443"), "inspect");
    assert_eq!(said(&policy, "POST https://www.code.test/"), "deny default");
    assert_eq!(said(&policy, "GET https://other.code.test/"), "deny default");
    assert_eq!(said(&policy, "connect other.code.test:443"), "deny default");
    assert_eq!(said(&policy, "GET https://mail.test/"), "deny no-mail");
    let Decision::Deny(refusal) = decide(&policy, "POST https://www.code.test/", &[]) else {
        panic!()
    };
    assert_eq!(
        refusal.reason.text,
        "no rule of layer `team` allows `POST https://www.code.test/`; rule `team-code` allows this host for GET only"
    );
    let limits: Vec<&str> = permit(&policy, "GET https://www.code.test/")
        .limits()
        .map(|(rule, _)| rule)
        .map(|rule| if rule == "code" { "code" } else { "other" })
        .collect();
    assert_eq!(limits, ["code"], "the limits of all layers hold");
}

#[test]
fn a_layer_that_inherits_refuses_only_what_its_rules_refuse() {
    let policy = under_organisation(
        "version: 1\ndefault: inherit\nrules: [{id: no-post, to: {host: a.code.test, methods: [POST]}, effect: deny}]",
    );
    assert_eq!(said(&policy, "GET https://www.code.test/"), "allow code");
    assert_eq!(said(&policy, "POST https://a.code.test/"), "deny no-post");
    assert_eq!(said(&policy, "GET https://unknown.test/"), "deny default");
    assert_eq!(
        permit(&policy, "GET https://packages.test/").credentials(),
        ["packages"]
    );
    assert_eq!(said(&policy, "connect pinned.test:443"), "allow pinned");
    assert_eq!(
        permit(&policy, "connect pinned.test:443").protocol(),
        Protocol::Tls
    );
}

#[test]
fn a_rule_that_may_be_widened_gives_way_to_an_explicit_rule_of_that_layer_only() {
    let allow = "version: 1\ndefault: inherit\nrules: [{id: own, to: {host: [paste.test, mail.test, releases.test, new.test]}, effect: allow}]";
    let team = under_organisation(allow);
    assert_eq!(said(&team, "GET https://paste.test/"), "allow own");
    assert_eq!(said(&team, "connect paste.test:443"), "inspect");
    assert_eq!(said(&team, "GET https://mail.test/"), "deny no-mail");
    assert_eq!(said(&team, "GET https://releases.test/"), "ask releases");
    assert_eq!(said(&team, "GET https://new.test/"), "deny default");
    let run = compile(&[(Layer::Organisation, ORGANISATION), (Layer::Run, allow)]);
    assert_eq!(said(&run, "GET https://paste.test/"), "deny no-paste");
    assert_eq!(said(&run, "GET https://releases.test/"), "allow own");
    let silent = under_organisation("version: 1\ndefault: allow\n");
    assert_eq!(said(&silent, "GET https://paste.test/"), "deny no-paste");
}

#[test]
fn reach_beyond_the_ceiling_is_left_to_the_layers_that_it_names() {
    let wide = format!("{ORGANISATION}\nwiden: {{reach: [team], credentials: [team]}}\n");
    let own = "version: 1\ncredentials: {mine: {from: {store: mine}, hosts: [new.test], in: [bearer], env: MINE}}\nrules: [{id: own, to: {host: [new.test, mail.test]}, use: [mine], effect: allow}, {id: maybe, to: {host: maybe.test}, effect: ask}]";
    let policy = compile(&[(Layer::Team, own), (Layer::Organisation, &wide)]);
    assert_eq!(said(&policy, "GET https://new.test/"), "allow own");
    assert_eq!(permit(&policy, "GET https://new.test/").credentials(), ["mine"]);
    assert_eq!(said(&policy, "GET https://mail.test/"), "deny no-mail");
    assert_eq!(said(&policy, "GET https://maybe.test/"), "ask maybe");
    let run = own.replace("{id: maybe, to: {host: maybe.test}, effect: ask}", "");
    let run = run.replace(
        "credentials: {mine: {from: {store: mine}, hosts: [new.test], in: [bearer], env: MINE}}\n",
        "",
    );
    let run = run.replace("use: [mine], ", "");
    let policy = compile(&[(Layer::Organisation, &wide), (Layer::Run, &run)]);
    assert_eq!(said(&policy, "GET https://new.test/"), "deny default");
}

#[test]
fn who_was_left_nothing_cannot_leave_it_further_down() {
    let top = "version: 1\nrules: [{id: top, to: {host: a.test}, effect: deny, widen: [team]}]";
    let team = "version: 1\nrules: [{id: team, to: {host: a.test}, effect: ask, widen: [run]}]";
    let run = "version: 1\nrules: [{id: run, to: {host: a.test}, effect: allow}]";
    let policy = compile(&[(Layer::Organisation, top), (Layer::Team, team), (Layer::Run, run)]);
    assert_eq!(said(&policy, "GET https://a.test/"), "ask team");
}

#[test]
fn a_special_address_must_be_opened_by_each_layer_that_decides() {
    let closed =
        under_organisation("version: 1\nrules: [{id: git, to: {host: git.corp.test}, effect: allow}]");
    let inherits = under_organisation("version: 1\ndefault: inherit");
    let opens = under_organisation(
        "version: 1\nrules: [{id: git, to: {host: [git.corp.test, 10.1.0.0/16], private: true}, effect: allow}]",
    );
    let admits = |policy: &Policy, address: &str| {
        permit(policy, "GET https://git.corp.test/")
            .admits_address(address.parse().unwrap())
            .is_ok()
    };
    assert!(!admits(&closed, "10.1.2.3"));
    assert!(admits(&inherits, "10.1.2.3") && admits(&inherits, "10.9.2.3"));
    assert!(admits(&opens, "10.1.2.3") && !admits(&opens, "10.9.2.3"));
    assert_eq!(said(&closed, "GET https://10.1.2.3/"), "deny default");
    assert_eq!(said(&opens, "GET https://10.1.2.3/"), "allow git");
}

#[test]
fn an_observing_layer_lets_pass_what_it_refuses_and_tells() {
    let policy = under_organisation(
        "version: 1\nmode: observe\nrules: [{id: no-post, to: {host: a.code.test, methods: [POST]}, effect: deny}, {id: pack, to: {host: packages.test, methods: [GET]}, effect: allow}]",
    );
    assert_eq!(said(&policy, "POST https://a.code.test/"), "observe no-post");
    assert_eq!(said(&policy, "GET https://b.code.test/"), "observe default");
    assert_eq!(said(&policy, "GET https://mail.test/"), "deny no-mail");
    assert_eq!(said(&policy, "GET https://packages.test/"), "allow pack");
    let observed = permit(&policy, "PUT https://packages.test/");
    assert!(observed.observed().is_some() && observed.credentials().is_empty());
    assert_eq!(said(&policy, "GET https://10.1.2.3/"), "deny default");
    let corp = permit(&policy, "GET https://git.corp.test/");
    assert!(corp.admits_address("10.1.2.3".parse().unwrap()).is_err());
    assert_eq!(said(&policy, "connect b.code.test:443"), "inspect");
}

#[test]
fn an_explanation_names_the_layers_and_what_is_only_observed() {
    let policy = under_organisation(
        "version: 1\nmode: observe\nrules: [{id: no-post, to: {host: a.code.test, methods: [POST]}, effect: deny}]",
    );
    let explanation = policy.explain(
        &Request::parse("POST https://a.code.test/").unwrap(),
        &Who::default(),
        &Overlay::default(),
        jiff::Timestamp::UNIX_EPOCH,
    );
    assert_eq!(explanation.verdict.decision, "allow");
    assert_eq!(explanation.verdict.observed.as_ref().unwrap().rule, "no-post");
    let text = explanation.to_string();
    for expected in [
        "observed only: rule `no-post` denies `POST https://a.code.test/`",
        " no-post (deny, team, team.yaml:3:14): yes: it matches",
        " code (allow, organisation, organisation.yaml:7:10): yes: it matches",
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
}

#[test]
fn an_observing_rule_refuses_nothing_and_takes_nothing_from_what_else_allows() {
    let policy = compile(&[(
        Layer::Run,
        "version: 1\ncredentials: {c: {from: {store: c}, hosts: [a.test], in: [bearer], env: C}}\nrules: [{id: a, to: {host: a.test}, use: [c], effect: allow}, {id: no-put, to: {host: '*.test', methods: [PUT]}, effect: deny, mode: observe}]",
    )]);
    let mut policy_permit = permit(&policy, "PUT https://a.test/");
    assert_eq!(policy_permit.observed().unwrap().reason.rule, "no-put");
    assert_eq!(policy_permit.credentials(), ["c"]);
    policy_permit = permit(&policy, "GET https://a.test/");
    assert!(policy_permit.observed().is_none());
    assert_eq!(said(&policy, "PUT https://x.test/"), "deny default");
}

#[test]
fn a_grant_is_given_only_where_the_rest_would_then_allow() {
    let inherits = under_organisation("version: 1\ndefault: inherit");
    assert_eq!(
        grant(&inherits, "releases.test"),
        Err(GrantRefused::NeedsPerson {
            rule: "releases".into(),
            approvers: vec!["team:leads".into()],
        })
    );
    assert_eq!(inherits.approvers("releases"), ["team:leads"]);
    let now = jiff::Timestamp::UNIX_EPOCH;
    let given = inherits
        .grant_by_person(&wanted("releases.test"), &Who::default(), now, "ann")
        .unwrap();
    assert!(matches!(
        decide(&inherits, "GET https://releases.test/", &[given]),
        Decision::Allow(_)
    ));
    let closed = under_organisation("version: 1");
    assert_eq!(
        grant(&closed, "releases.test"),
        Err(GrantRefused::NotGrantable {
            rule: "default".into()
        })
    );
    assert_eq!(said(&closed, "GET https://releases.test/"), "deny default");
    let lifting = under_organisation(
        "version: 1\ndefault: inherit\nrules: [{id: slow, to: {host: www.code.test}, effect: deny, grantable: {by: rule}}]",
    );
    let given = grant(&lifting, "www.code.test").unwrap();
    assert!(matches!(
        decide(
            &lifting,
            "GET https://www.code.test/",
            std::slice::from_ref(&given)
        ),
        Decision::Allow(_)
    ));
    assert!(matches!(
        grant(&lifting, "packages.test"),
        Err(GrantRefused::AlreadyAllowed { rule }) if rule == "packages"
    ));
    let Decision::Deny(refusal) = decide(&lifting, "GET https://www.code.test/", &[]) else {
        panic!()
    };
    assert_eq!(refusal.remedy, Remedy::RequestAccess);
}

#[test]
fn what_is_wrong_between_layers_is_told_with_its_place() {
    let top = "version: 1\nrules: [{id: a, to: {host: a.test}, effect: allow, use: [late]}]";
    let team = "version: 1\ndefault: inherit\nwiden: {reach: [team]}\ncredentials: {late: {from: {store: x}, hosts: [a.test], in: [bearer], env: X}}\nrules: [{id: a, to: {host: a.test}, effect: deny, widen: [team]}]";
    let found = problems(&[
        (Layer::Organisation, top),
        (Layer::Team, team),
        (Layer::Team, "version: 1"),
    ]);
    for expected in [
        "team.yaml:1:1: error: layer `team` is given twice",
        "organisation.yaml:2:58: error: no credential is called `late`",
        "error: rule `a` is defined twice; first at organisation.yaml:2:",
        "team.yaml:3:17: error: layer `team` is not below layer `team`",
        "error: credential `late` is bound in layer `team`, which layer `organisation` does not allow",
    ] {
        assert!(found.contains(expected), "no {expected} in\n{found}");
    }
    let alone = problems(&[(Layer::Organisation, "version: 1\ndefault: inherit")]);
    assert!(
        alone.contains("organisation.yaml:2:10: error: `default: inherit` needs a layer above"),
        "{alone}"
    );
}

#[test]
fn the_hash_covers_all_layers_and_no_layer_allows_nothing() {
    let text = ORGANISATION
        .replace(", widen: [team]", "")
        .replace(", widen: [run]", "");
    let run = (Layer::Run, "version: 1\ndefault: inherit");
    let one = compile(&[(Layer::Organisation, &text), run]);
    let other = compile(&[(Layer::Team, &text), run]);
    assert_ne!(one.hash(), other.hash());
    let sole = layer(Layer::Run, &text);
    let layered = Policy::compile_layers(std::slice::from_ref(&sole)).unwrap();
    assert_eq!(layered.hash(), Policy::compile(&sole.texts).unwrap().hash());
    assert_eq!(said(&compile(&[]), "GET https://a.test/"), "deny default");
}

#[test]
fn what_rules_and_layers_say_of_secrets_holds_together_and_is_told() {
    let layers = [
        (
            Layer::Organisation,
            "version: 1\nleaks: {unknown: log}\nrules:\n  - {id: all, to: {host: \"*\"}, effect: allow}\n",
        ),
        (
            Layer::Run,
            "version: 1\nrules:\n  - {id: model, to: {host: a.test}, effect: allow, leaks: {values: redact}}\n  \
             - {id: posts, to: {host: a.test, methods: [POST]}, effect: allow, leaks: {values: refuse}}\n  \
             - {id: other, to: {host: b.test}, effect: allow}\n",
        ),
    ];
    let layers = layers.map(|(layer, text)| LayerTexts {
        layer,
        texts: vec![PolicyText {
            name: format!("{layer}.yaml"),
            text: text.into(),
        }],
    });
    let policy = Policy::compile_layers(&layers).unwrap();
    for (asked, said) in [
        ("GET https://a.test/", "values redacted, unknown secrets logged"),
        ("POST https://a.test/", "values refused, unknown secrets logged"),
        ("GET https://b.test/", "unknown secrets logged"),
    ] {
        let request = Request::parse(asked).unwrap();
        let (who, none, now) = (Who::default(), Overlay::default(), jiff::Timestamp::UNIX_EPOCH);
        let Decision::Allow(permit) = policy.decide(&request, &who, &none, now) else {
            panic!("{asked}")
        };
        assert_eq!(permit.leaks().to_string(), said);
        let told = policy.explain(&request, &who, &none, now).to_string();
        assert!(told.contains(&format!("secrets: {said}")), "{told}");
    }
}
