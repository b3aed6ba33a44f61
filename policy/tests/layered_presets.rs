//! A preset that several layers include: its rules keep their ids, and an id means the rule in all of them.
#![expect(clippy::panic, reason = "helpers of tests may fail the test")]

use sallyport_policy::{
    Decision, Grant, Layer, LayerTexts, Overlay, Policy, PolicyText, Problem, Request, Wanted, Who,
};

const SHARED: &str = "version: 1\nrules:\n  - {id: shared-read, to: {host: a.test, methods: [GET]}, effect: allow, limit: {rate: 5/s}}\n  - {id: shared-docs, to: {host: docs.test}, effect: deny, grantable: {by: rule, uses: 2}}\n";

fn layer(layer: Layer, policy: &str, preset: Option<&str>) -> LayerTexts {
    let text = |name: String, text: &str| PolicyText {
        name,
        text: text.into(),
    };
    let mut texts = vec![text(format!("{layer}.yaml"), policy)];
    texts.extend(preset.map(|preset| text("preset:shared".into(), preset)));
    LayerTexts { layer, texts }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn compile(layers: &[LayerTexts]) -> Policy {
    Policy::compile_layers(layers).unwrap_or_else(|problems| panic!("{}", listed(&problems)))
}

fn both(lower: &str) -> Result<Policy, Vec<Problem>> {
    let policy = "version: 1\ninclude: [preset:shared]\n";
    Policy::compile_layers(&[
        layer(Layer::Organisation, policy, Some(SHARED)),
        layer(Layer::Run, policy, Some(lower)),
    ])
}

fn decide(policy: &Policy, request: &str, grants: &[Grant]) -> Decision {
    let overlay = Overlay {
        grants: grants.to_vec(),
    };
    let request = Request::parse(request).expect("a request");
    policy.decide(&request, &Who::default(), &overlay, jiff::Timestamp::UNIX_EPOCH)
}

#[test]
fn a_shipped_preset_may_stand_in_every_layer() {
    let policy = "version: 1\ninclude: [preset:github]\n";
    let policy = compile(&[
        layer(Layer::Organisation, policy, None),
        layer(Layer::Team, policy, None),
        layer(Layer::Run, policy, None),
    ]);
    assert!(policy.warnings().is_empty(), "{}", listed(policy.warnings()));
    assert!(policy.lints(jiff::Timestamp::UNIX_EPOCH).is_empty());
}

#[test]
fn its_limit_counts_once() {
    let Ok(policy) = both(SHARED) else {
        panic!("it does not compile");
    };
    let Decision::Allow(permit) = decide(&policy, "GET https://a.test/", &[]) else {
        panic!("it is not allowed");
    };
    assert_eq!((permit.rule(), permit.limits().count()), ("shared-read", 1));
}

#[test]
fn one_grant_lifts_it_in_all_layers_and_is_used_up_once() {
    let Ok(policy) = both(SHARED) else {
        panic!("it does not compile");
    };
    let wanted = Wanted {
        credential: None,
        host: "docs.test".into(),
        port: 443,
        method: None,
        path: None,
    };
    let granted = policy.grant(&wanted, &Who::default(), jiff::Timestamp::UNIX_EPOCH);
    let mut grant = granted.expect("the policy grants it");
    grant.id = "g1".into();
    let Decision::Allow(permit) = decide(&policy, "GET https://docs.test/", &[grant]) else {
        panic!("the grant does not lift it");
    };
    assert_eq!(permit.grants(), ["g1"]);
}

#[test]
fn leaving_it_out_leaves_it_out_everywhere() {
    let Ok(policy) = both(SHARED) else {
        panic!("it does not compile");
    };
    let request = Request::parse("GET https://docs.test/").expect("a request");
    let told = policy
        .explain(
            &request,
            &Who::default(),
            &Overlay::default(),
            jiff::Timestamp::UNIX_EPOCH,
        )
        .to_string();
    assert!(!told.contains("`shared-docs` and `shared-docs`"), "{told}");
}

#[test]
fn another_text_of_the_same_name_is_another_rule() {
    let Err(problems) = both(&SHARED.replace("host: a.test", "host: b.test")) else {
        panic!("it compiles");
    };
    assert_eq!(
        listed(&problems),
        "preset:shared:3:10: error: rule `shared-read` is defined twice; first at preset:shared:3:10\n  hint: each rule has its own id; refusals and logs use it\n"
    );
}
