//! Fuzzes the matcher: one form of each host and path, and no spelling that gets past a rule.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_policy::{
    CanonicalPath, Decision, Host, Moment, Overlay, Policy, PolicyText, Request, Who, classify,
};
use std::sync::LazyLock;

const TEXT: &str = r#"
version: 1
rules:
  - {id: all, to: {host: ["*", 0.0.0.0/0, "::/0"], port: 1-65535}, effect: allow}
  - {id: name, to: {host: [denied.test, "*.denied.test", 203.0.113.0/24]}, effect: deny}
  - {id: secret, to: {host: "*", protocol: git, repository: "secret/**"}, effect: deny}
  - {id: debug, to: {host: "*", query: {debug: "*"}}, effect: deny}
  - {id: admin, to: {host: "*", path: ["/public/admin", "/public/admin/**"]}, effect: deny}
"#;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = PolicyText {
        name: "fuzz.yaml".to_owned(),
        text: TEXT.to_owned(),
    };
    Policy::compile(&[text]).expect("the policy of this file compiles")
});

fuzz_target!(|text: &str| {
    if let Ok(host) = Host::parse(text) {
        assert_eq!(
            Host::parse(&host.to_string()).as_ref(),
            Ok(&host),
            "a host's form is stable"
        );
    }
    if let Ok(path) = CanonicalPath::parse(text) {
        assert_eq!(
            CanonicalPath::parse(path.as_str()).map(|again| again.as_str().to_owned()),
            Ok(path.as_str().to_owned())
        );
    }
    if let Ok(request) = Request::parse(text) {
        decided(&request);
        told(&request);
    }
    if let Ok(request) = Request::parse(&format!("GET https://{text}")) {
        decided(&request);
    }
    if let Ok(request) = Request::parse(&format!("POST https://git.test/{text}/git-receive-pack")) {
        decided(&request);
    }
});

/// What is printed leads to the same place. What was odd about the first spelling is no longer seen in the printed one.
fn told(request: &Request) {
    let told = POLICY
        .explain(
            request,
            &Who::default(),
            &Overlay::default(),
            jiff::Timestamp::UNIX_EPOCH,
        )
        .request;
    if let Ok(again) = Request::parse(&told) {
        assert_eq!(again.destination, request.destination);
    }
}

fn decided(request: &Request) {
    let allowed = matches!(
        POLICY.decide(
            request,
            &Who::default(),
            &Overlay::default(),
            jiff::Timestamp::UNIX_EPOCH
        ),
        Decision::Allow(_)
    );
    if !allowed {
        return;
    }
    match &request.destination.host {
        Host::Name(name) => {
            let labels: Vec<&str> = name.split('.').filter(|label| !label.is_empty()).collect();
            assert!(
                !labels.ends_with(&["denied", "test"]),
                "`{name}` got past its rule"
            );
        }
        Host::Address(address) => assert!(
            classify(*address).is_none(),
            "`{address}` got past the special ranges"
        ),
    }
    if let Moment::Http(http) = &request.moment {
        let path = http.path.as_str();
        assert!(
            path != "/public/admin" && !path.starts_with("/public/admin/"),
            "`{path}` got past its rule"
        );
        assert!(
            !path.split('/').any(|segment| segment == ".." || segment == "."),
            "`{path}` has dot segments"
        );
        assert!(
            !(path.starts_with("/secret/") && path.ends_with("/git-receive-pack")),
            "`{path}` got past its rule"
        );
        let debug = http.query.iter().flat_map(|query| query.split('&'));
        assert!(
            !debug
                .into_iter()
                .any(|pair| pair == "debug" || pair.starts_with("debug=")),
            "a parameter got past its rule"
        );
    }
}
