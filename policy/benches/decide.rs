//! What a decision costs, at ten rules and at ten thousand with a hundred thousand hosts, beside plain look-ups.
#[path = "../tests/big/mod.rs"]
mod big;

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use sallyport_policy::{Decision, Overlay, Policy, Request, Who};
use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Allow(_) => "allow",
        Decision::Inspect => "inspect",
        Decision::Ask(_) => "ask",
        Decision::Deny(_) => "deny",
    }
}

/// Measures one decision, of which the answer is known.
fn decide(
    group: &mut BenchmarkGroup<'_, WallTime>,
    policy: &Policy,
    name: &str,
    expected: &str,
    request: &Request,
) {
    let (who, overlay) = (Who::default(), Overlay::default());
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert_eq!(
        word(&policy.decide(request, &who, &overlay, now)),
        expected,
        "{name}"
    );
    group.bench_function(name, |bencher| {
        bencher.iter(|| policy.decide(black_box(request), &who, &overlay, now));
    });
}

fn ordinary(criterion: &mut Criterion, rules: usize) {
    let policy = big::compile(big::big(rules));
    let middle = rules / 20 * 10;
    let mut group = criterion.benchmark_group(format!("{rules} rules"));
    let at = |offset: usize| format!("h3.z{}.test", middle + offset);
    let mut case =
        |name: &str, expected: &str, request: Request| decide(&mut group, &policy, name, expected, &request);
    case("allow a name", "allow", big::http("GET", &at(1), "/"));
    case(
        "allow under a domain",
        "allow",
        big::http("GET", &format!("x.y.w{}.test", middle + 1), "/"),
    );
    case("allow by path", "allow", big::http("GET", &at(5), "/v1/web/a/b"));
    case("connect", "inspect", big::connect(&at(1)));
    case("deny by a rule", "deny", big::http("DELETE", &at(9), "/"));
    case("ask", "ask", big::http("PUT", &at(8), "/"));
    case("deny by default", "deny", big::http("GET", "unknown.test", "/"));
    case(
        "deny the deepest name",
        "deny",
        big::http("GET", &big::deep("none.test"), "/"),
    );
    case(
        "allow the deepest name",
        "allow",
        big::http("GET", &big::deep(&format!("w{}.test", middle + 1)), "/"),
    );
    baselines(&mut group, rules, &at(1));
    group.finish();
}

/// The least that finding a host can cost, and what walking over all of them does.
fn baselines(group: &mut BenchmarkGroup<'_, WallTime>, rules: usize, host: &str) {
    let names = (0..rules).flat_map(|rule| (0..9).map(move |host| (format!("h{host}.z{rule}.test"), rule)));
    let map: HashMap<String, usize> = names.clone().collect();
    group.bench_function("baseline: one look-up in a hash map of the names", |bencher| {
        bencher.iter(|| map.get(black_box(host)).copied());
    });
    let domains = (0..rules).map(|rule| (format!(".w{rule}.test"), rule));
    let list: Vec<(String, usize)> = names.chain(domains).collect();
    group.bench_function("baseline: a walk over all names and domains", |bencher| {
        bencher.iter(|| {
            let fits = |pattern: &String| match pattern.starts_with('.') {
                true => black_box(host).ends_with(pattern.as_str()),
                false => black_box(host) == pattern,
            };
            list.iter().filter(|(pattern, _)| fits(pattern)).count()
        });
    });
}

fn worst(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("10000 rules on one host, each with a path");
    let policy = big::compile(big::paths(10_000));
    let mut case =
        |name: &str, expected: &str, request: Request| decide(&mut group, &policy, name, expected, &request);
    case(
        "allow",
        "allow",
        big::http("GET", "api.test", "/repos/team-5000/web/pulls/7"),
    );
    case(
        "allow within a segment",
        "allow",
        big::http("GET", "api.test", "/files/part-5003-x"),
    );
    case(
        "deny by a rule",
        "deny",
        big::http("GET", "api.test", "/v1/x/items-9"),
    );
    case(
        "deny by default",
        "deny",
        big::http("GET", "api.test", "/v1/x/items-none"),
    );
    case("connect", "inspect", big::connect("api.test"));
    group.finish();
    let mut group = criterion.benchmark_group("10000 rules that name every host, each with a path");
    let policy = big::compile(big::stars(10_000));
    let mut case =
        |name: &str, expected: &str, request: Request| decide(&mut group, &policy, name, expected, &request);
    case("allow", "allow", big::http("GET", "a.b.c.test", "/p5000/x"));
    case("deny by default", "deny", big::http("GET", "a.b.c.test", "/none"));
    case("connect", "inspect", big::connect("a.b.c.test"));
    group.finish();
}

fn compiling(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compile");
    group.sample_size(10);
    let text = big::big(10_000);
    group.bench_function("10000 rules with 100000 hosts from text", |bencher| {
        bencher.iter(|| big::compile(text.clone()));
    });
    group.finish();
}

fn all(criterion: &mut Criterion) {
    ordinary(criterion, 10);
    ordinary(criterion, 10_000);
    worst(criterion);
    compiling(criterion);
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = all
}
criterion_main!(benches);
