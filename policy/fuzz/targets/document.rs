//! Fuzzes the reader: any bytes are a policy or have a problem with a place, and what compiles decides and explains alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_policy::{Decision, Overlay, Policy, PolicyText, Problem, Request, Severity, Who};

const REQUESTS: &[&str] = &[
    "connect a.test:443",
    "opaque a.test:5432",
    "GET https://a.test/",
    "GET https://a.b.test/x/y?z=1",
    "PUT http://10.1.2.3:8080/x%2Fy",
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let text = PolicyText {
        name: "fuzz.yaml".to_owned(),
        text: text.to_owned(),
    };
    match Policy::compile(&[text]) {
        Err(problems) => wrong(&problems),
        Ok(policy) => {
            policy.run_tests();
            REQUESTS.iter().for_each(|request| ask(&policy, request));
        }
    }
});

fn wrong(problems: &[Problem]) {
    assert!(problems.iter().any(|problem| problem.severity == Severity::Error));
    for problem in problems {
        assert!(
            problem.line >= 1 && problem.column >= 1 && !problem.message.is_empty(),
            "{problem:?}"
        );
    }
}

fn ask(policy: &Policy, request: &str) {
    let request = Request::parse(request).expect("the requests of this file can be read");
    let (who, overlay, now) = (Who::default(), Overlay::default(), jiff::Timestamp::UNIX_EPOCH);
    let word = match policy.decide(&request, &who, &overlay, now) {
        Decision::Allow(_) => "allow",
        Decision::Inspect => "inspect",
        Decision::Ask(_) => "ask",
        Decision::Deny(_) => "deny",
    };
    assert_eq!(
        policy.explain(&request, &who, &overlay, now).verdict.decision,
        word
    );
}
