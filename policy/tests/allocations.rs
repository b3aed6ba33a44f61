//! An answer that rests on rules alone is made without allocating, and a big policy is small in memory.
mod big;

use allocation_counter::measure;
use sallyport_policy::{Decision, Overlay, Policy, Request, Who};

/// 64 MiB.
const MOST_BYTES: i64 = 64 * 1024 * 1024;

/// Allocations of one decision, of which the answer is known.
fn allocations(policy: &Policy, request: &Request, expected: &str) -> u64 {
    let (who, overlay) = (Who::default(), Overlay::default());
    let mut answer = None;
    let counted = measure(|| {
        answer = Some(policy.decide(request, &who, &overlay, jiff::Timestamp::UNIX_EPOCH));
    });
    let word = match answer {
        Some(Decision::Allow(_)) => "allow",
        Some(Decision::Inspect) => "inspect",
        Some(Decision::Ask(_) | Decision::Deny(_)) => "refuse",
        None => "none",
    };
    assert_eq!(word, expected, "{request:?}");
    counted.count_total
}

#[test]
fn allowing_allocates_nothing() {
    for rules in [10, 1_000] {
        let policy = big::compile(big::big(rules));
        for (expected, request) in [
            ("allow", big::http("GET", "h3.z1.test", "/")),
            ("allow", big::http("GET", "x.y.w1.test", "/")),
            ("allow", big::http("GET", "h3.z5.test", "/v1/web/a/b")),
            ("allow", big::http("GET", "h3.z7.test", "/")),
            ("allow", big::http("GET", &big::deep("w1.test"), "/")),
            ("inspect", big::connect("h3.z1.test")),
        ] {
            assert_eq!(allocations(&policy, &request, expected), 0, "{request:?}");
        }
    }
    let policy = big::compile(big::paths(1_000));
    let request = big::http("GET", "api.test", "/repos/team-500/web/pulls/7");
    assert_eq!(allocations(&policy, &request, "allow"), 0);
    assert_eq!(allocations(&policy, &big::connect("api.test"), "inspect"), 0);
    let policy = big::compile(big::stars(1_000));
    let request = big::http("GET", "a.b.test", "/p500/x");
    assert_eq!(allocations(&policy, &request, "allow"), 0);
}

#[test]
fn refusing_allocates_little() {
    let policy = big::compile(big::big(1_000));
    for request in [
        big::http("DELETE", "h3.z9.test", "/"),
        big::http("PUT", "h3.z8.test", "/"),
        big::http("GET", "unknown.test", "/"),
    ] {
        let count = allocations(&policy, &request, "refuse");
        assert!((1..40).contains(&count), "{count} for {request:?}");
    }
}

#[test]
fn ten_thousand_rules_with_a_hundred_thousand_hosts_fit_into_64_mib() {
    let text = big::big(10_000);
    let mut policy = None;
    let counted = measure(|| policy = Some(big::compile(text.clone())));
    assert!(policy.is_some_and(|policy| policy.warnings().is_empty()));
    assert!(
        (1..MOST_BYTES).contains(&counted.bytes_current),
        "{} bytes are kept",
        counted.bytes_current
    );
}
