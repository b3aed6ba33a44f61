//! Differences told as sentences, and that none is missed, none invented and none misnamed.
use super::*;
use crate::host_pattern::HostPattern;
use crate::path_pattern::{PathPattern, Slashes};
use crate::space::Part;
use crate::{CanonicalPath, Destination, Host, HttpRequest, Moment, PolicyText, SshRequest};
use proptest::prelude::*;

fn policy(rules: &str) -> Policy {
    let text = PolicyText {
        name: "p.yaml".into(),
        text: format!("version: 1\n{rules}"),
    };
    Policy::compile(&[text]).unwrap_or_else(|problems| {
        panic!(
            "{}{rules}",
            problems.iter().map(|p| format!("{p}\n")).collect::<String>()
        )
    })
}

fn now() -> jiff::Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn told(a: &str, b: &str) -> String {
    policy(a).diff(&policy(b), now()).to_string()
}

#[test]
fn the_same_policy_differs_in_nothing() {
    let rules = "rules:\n  - {id: a, to: {host: ['*.a.test', 10.0.0.0/8], path: /x/**}, who: {team: 'w*'}, effect: allow}\n  - {id: b, to: {host: '*', methods: [GET]}, effect: ask}";
    assert!(policy(rules).diff(&policy(rules), now()).is_empty());
    assert_eq!(told(rules, rules), "no request is treated differently");
    let renamed = rules.replace("id: a", "id: c");
    assert!(policy(rules).diff(&policy(&renamed), now()).is_empty());
}

#[test]
fn what_is_newly_allowed_is_told_as_traffic() {
    let before = "rules:\n  - {id: docs, to: {host: docs.test, methods: [GET]}, effect: allow}";
    let after = "rules:\n  - {id: docs, to: {host: [docs.test, '*.docs.test'], methods: [GET, HEAD], path: /a/**}, effect: allow}\n  - {id: no, to: {host: docs.test, path: /a/b}, effect: deny}";
    assert_eq!(
        told(before, after),
        "newly allowed:
  docs.test
    port 443; http; methods HEAD; path /a/** except /a/b
    before: denied, by default
    after:  allowed, by docs (p.yaml:3:10)
    example: HEAD https://docs.test/a
  *.docs.test
    port 443; http; methods GET, HEAD; path /a/**
    before: denied, by default
    after:  allowed, by docs (p.yaml:3:10)
    example: GET https://x.docs.test/a
newly denied:
  docs.test
    port 443; http; methods GET; path any except /a/**; /a/b
    before: allowed, by docs (p.yaml:3:10)
    after:  denied, by default or no (p.yaml:4:10)
    example: GET https://docs.test/
3 differences"
    );
}

#[test]
fn hosts_are_gathered_by_what_changes() {
    let hosts: Vec<String> = (0..100).map(|n| format!("h{n}.test")).collect();
    let before = "rules:\n  - {id: a, to: {host: '*'}, effect: deny}";
    let after = format!(
        "{before}\n  - {{id: b, to: {{host: [{}]}}, effect: allow}}",
        hosts.join(", ")
    );
    let allowed = after.replace("host: '*'", "host: other.test");
    assert_eq!(policy(before).diff(&policy(&after), now()).changes.len(), 0);
    let diff = policy(before).diff(&policy(&allowed), now());
    assert_eq!(diff.changes.len(), 1, "{diff}");
    assert!(
        diff.to_string()
            .contains("h0.test, h1.test, h10.test, h11.test, h12.test, h13.test and 94 more\n"),
        "{diff}"
    );
    assert_eq!(diff.changes[0].hosts.0.len(), 100);
}

#[test]
fn what_goes_with_an_answer_is_compared_too() {
    let credential = "credentials:\n  key: {from: {store: x}, hosts: [a.test], in: [bearer]}\nrules:\n";
    let plain = format!("{credential}  - {{id: a, to: {{host: a.test}}, effect: allow}}");
    let keyed = format!("{credential}  - {{id: a, to: {{host: a.test}}, use: [key], effect: allow}}");
    let text = told(&plain, &keyed);
    assert!(
        text.contains("changed:\n  a.test\n    port 443; https\n    before: allowed, by"),
        "{text}"
    );
    assert!(text.contains("after:  allowed, credentials: key, by a"), "{text}");
    let elsewhere = keyed.replace("bearer", "header:X-Key");
    assert!(!policy(&keyed).diff(&policy(&elsewhere), now()).is_empty());

    let deny = "rules:\n  - {id: a, to: {host: a.test}, effect: deny}";
    let lifted = "rules:\n  - {id: a, to: {host: a.test}, effect: deny, grantable: {by: rule, uses: 3}}";
    let text = told(deny, lifted);
    assert!(
        text.contains("to be had by asking, for 1h, 3 times, by a"),
        "{text}"
    );

    let limited = "rules:\n  - {id: a, to: {host: a.test}, limit: {connections: 4}, effect: allow}";
    let text = told("rules:\n  - {id: a, to: {host: a.test}, effect: allow}", limited);
    assert!(
        text.contains("after:  allowed, limits: connections 4, by a"),
        "{text}"
    );

    let observed = "mode: observe\nrules: []";
    let text = told("rules: []", observed);
    assert!(text.contains("allowed and told as refused"), "{text}");

    let unread = "rules:\n  - {id: a, to: {host: a.test, protocol: tls}, effect: allow}";
    let text = told("rules:\n  - {id: a, to: {host: a.test}, effect: allow}", unread);
    assert!(text.contains("tls passes unread"), "{text}");

    let private = "rules:\n  - {id: a, to: {host: [a.test, 10.0.0.0/8], private: true}, effect: allow}";
    let less = private.replace("10.0.0.0/8", "10.1.0.0/16");
    let text = told(private, &less);
    assert!(
        text.contains("newly denied:\n  10.0.0.0/8 except 10.1.0.0/16\n"),
        "{text}"
    );
    assert!(
        text.contains("private addresses: 10.0.0.0/8, 10.1.0.0/16, by"),
        "{text}"
    );
}

#[test]
fn windows_of_time_and_facts_are_told_as_they_are_written() {
    let before = "rules:\n  - {id: a, to: {host: a.test}, who: {team: web}, effect: allow}";
    let after = "rules:\n  - {id: a, to: {host: a.test}, who: {team: [web, 'ops-*']}, during: {days: mon-fri, hours: '07:00-20:00', zone: Europe/Berlin}, effect: allow}";
    let text = told(before, after);
    assert!(text.contains("newly allowed:\n  a.test\n    port 443; http; team ops-*; during mon, tue, wed, thu, fri, 07:00-20:00 Europe/Berlin\n"), "{text}");
    assert!(
        text.contains("newly denied:\n  a.test\n    port 443; http; team web; during any except mon"),
        "{text}"
    );
    assert!(text.contains("over the year from 2026-11-30T12:00:00Z"), "{text}");
}

#[test]
fn encoded_slashes_conditions_and_log_ins_are_compared() {
    let plain = "rules:\n  - {id: a, to: {host: a.test, path: '/{x}'}, effect: allow}";
    let encoded = "rules:\n  - {id: a, to: {host: a.test, path: '/{x}', encoded-slash: true}, effect: allow}";
    let text = told(plain, encoded);
    assert!(
        text.contains("newly allowed:\n  a.test\n    port 443; http; path paths with an encoded slash\n")
            || text.contains("path /{x} with an encoded slash\n"),
        "{text}"
    );
    assert!(text.contains("example: GET https://a.test/x%2Fx"), "{text}");

    let conditioned = "rules:\n  - {id: a, to: {host: a.test, path: '/{x}', query: {service: [a]}, headers: {accept: 'b/*'}}, effect: allow}";
    let text = told(plain, conditioned);
    assert!(text.contains("newly denied:"), "{text}");
    assert!(text.contains("any except"), "{text}");

    let database = "rules:\n  - {id: a, to: {host: a.test, port: 5432, protocol: postgres, database: 'w*', user: me}, effect: allow}";
    let text = told("rules: []", database);
    assert!(
        text.contains("newly allowed:\n  a.test\n    port 5432; postgres; database w*; log-in me\n"),
        "{text}"
    );
}

#[test]
fn a_question_too_large_is_said_to_be_open() {
    let paths: Vec<String> = (0..24).map(|n| format!("'/**/p{n}/**'")).collect();
    let before = format!(
        "rules:\n  - {{id: a, to: {{host: a.test, path: [{}]}}, effect: allow}}",
        paths.join(", ")
    );
    let after = before.replace("p7", "q7");
    let diff = policy(&before).diff(&policy(&after), now());
    assert!(!diff.is_empty());
    assert!(diff.to_string().contains("not known:\n  a.test\n"), "{diff}");
}

const PATTERNS: &[&str] = &[
    "a.test",
    "'*.a.test'",
    "'*.test'",
    "b.a.test",
    "'*'",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "9.9.9.9",
    "'fd00::/8'",
];
const HOSTS: &[&str] = &[
    "a.test",
    "b.a.test",
    "c.b.a.test",
    "x.test",
    "other.example",
    "10.1.2.3",
    "10.9.9.9",
    "127.0.0.1",
    "9.9.9.9",
    "8.8.8.8",
    "[fd00::1]",
];
const PATHS: &[&str] = &["/a", "/a/**", "/**/b", "'/{x}'", "'/*b'", "/a/*/b", "/"];
const TEAMS: &[&str] = &["", "web", "web-1", "ops"];

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(texts)
}

fn rule() -> impl Strategy<Value = String> {
    let port = prop_oneof![2 => Just(""), 1 => Just(", port: [80, 443]"), 1 => Just(", port: '400-9999'")];
    let read = prop_oneof![
        Just(String::new()),
        Just(", methods: [GET]".to_owned()),
        Just(", methods: [GET, PUT]".to_owned()),
        one_of(PATHS).prop_map(|path| format!(", path: {path}")),
        (one_of(PATHS), one_of(PATHS)).prop_map(|(a, b)| format!(", path: [{a}, {b}], methods: [PUT]")),
        Just(", private: true".to_owned()),
    ];
    let who = prop_oneof![3 => Just(""), 1 => Just(", who: {team: web}"), 1 => Just(", who: {team: ['web*', ops]}")];
    let read = (read, prop_oneof![3 => Just("allow"), 1 => Just("ask"), 1 => Just("deny"), 1 => Just("deny, grantable: {by: rule}")])
        .prop_map(|(fine, effect)| {
            let fine = if effect != "allow" { fine.replace(", private: true", "") } else { fine };
            (fine, effect.to_owned())
        });
    let unread = prop_oneof![Just(", protocol: tcp, port: [80, 443]"), Just(", protocol: tls")]
        .prop_map(|fine| (fine.to_owned(), "allow".to_owned()));
    let carried = Just((String::new(), "allow, use: [key]".to_owned()));
    (
        one_of(PATTERNS),
        one_of(PATTERNS),
        port,
        who,
        prop_oneof![6 => read, 1 => unread, 1 => carried],
    )
        .prop_map(|(one, two, port, who, (fine, effect))| {
            let port = if fine.contains("port:") { "" } else { port };
            let hosts = if fine.contains("private") {
                format!("{one}, 10.1.0.0/16")
            } else {
                format!("{one}, {two}")
            };
            format!("to: {{host: [{hosts}]{port}{fine}}}{who}, effect: {effect}")
        })
}

fn document(rules: &[String], default: &str) -> String {
    let rules: String = rules
        .iter()
        .enumerate()
        .map(|(n, rule)| format!("  - {{id: r{n}, {rule}}}\n"))
        .collect();
    format!(
        "default: {default}\ncredentials:\n  key: {{from: {{store: x}}, hosts: ['*.test'], in: [bearer]}}\nrules:\n{rules}"
    )
}

fn two_policies() -> impl Strategy<Value = (String, String)> {
    let default = || prop_oneof![4 => Just("deny"), 1 => Just("allow")];
    let rules = || prop::collection::vec(rule(), 0..5);
    // Half of them share most of their rules, as policies do.
    (rules(), rules(), rules(), default(), default()).prop_map(|(shared, a, b, one, two)| {
        let with = |own: Vec<String>| [shared.clone(), own.into_iter().take(2).collect()].concat();
        (document(&with(a), one), document(&with(b), two))
    })
}

fn moments() -> Vec<Moment> {
    let mut moments = vec![
        Moment::Opaque,
        Moment::Connect,
        Moment::Ssh(SshRequest {
            user: "u".into(),
            git: None,
        }),
    ];
    for tls in [true, false] {
        for method in ["GET", "PUT", "POST"] {
            for path in tiny_paths() {
                let path = CanonicalPath::parse(&path).unwrap();
                moments.push(Moment::Http(HttpRequest::new(method, path, None, tls)));
            }
        }
    }
    moments
}

/// All paths of up to three segments over three labels, with and without a slash at their ends, and an ambiguous one.
fn tiny_paths() -> Vec<String> {
    let mut paths = vec![String::new()];
    let mut all = vec!["/".to_owned(), "/a//b".to_owned()];
    for _ in 0..3 {
        paths = paths
            .iter()
            .flat_map(|path| ["a", "b", "xb"].map(|label| format!("{path}/{label}")))
            .collect();
        all.extend(paths.iter().flat_map(|path| [path.clone(), format!("{path}/")]));
    }
    all
}

fn host_is_in(part: &str, host: &Host) -> bool {
    let special = |host: &Host| matches!(host, Host::Address(address) if crate::classify(*address).is_some());
    let address = matches!(host, Host::Address(_));
    match part {
        "*" => true,
        "any name" => !address,
        "any address" => address,
        "any public address" => address && !special(host),
        "any special address" => special(host),
        _ => match (
            part.strip_prefix("public addresses of "),
            part.strip_prefix("special addresses of "),
        ) {
            (Some(net), _) => host_is_in(net, host) && !special(host),
            (_, Some(net)) => host_is_in(net, host) && special(host),
            _ => HostPattern::parse(part).unwrap().matches(host),
        },
    }
}

fn axis_is_in(axis: &Axis, part: &str, request: &Request, who: &Who) -> bool {
    if part == "*" {
        return true;
    }
    match (axis, &request.moment) {
        (Axis::Port, _) => {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            (low.parse().unwrap()..=high.parse().unwrap()).contains(&request.destination.port)
        }
        (Axis::Protocol, moment) => match (part, moment) {
            ("http", Moment::Http(_)) => true,
            ("https", Moment::Http(http)) => http.tls,
            ("plain http", Moment::Http(http)) => !http.tls,
            ("unread streams", moment) => *moment == Moment::Opaque,
            ("ssh", moment) => matches!(moment, Moment::Ssh(_)),
            ("whole connections", moment) => *moment == Moment::Connect,
            _ => false,
        },
        (Axis::Method, Moment::Http(http)) => http.method == part,
        (Axis::Path, Moment::Http(http)) => match part {
            "ambiguous paths" => http.path.ambiguity().is_some(),
            _ => {
                http.path.ambiguity().is_none()
                    && PathPattern::parse(part, Slashes::Plain)
                        .unwrap()
                        .matches(&http.path)
            }
        },
        (Axis::Who(fact), _) => {
            let value = who.fact(fact);
            !value.is_empty()
                && part
                    .strip_suffix('*')
                    .map_or(part == value, |head| value.starts_with(head))
        }
        _ => false,
    }
}

fn covers(change: &Change, request: &Request, who: &Who) -> bool {
    let holds = |part: &Part, is_in: &dyn Fn(&str) -> bool| {
        part.of.iter().all(|of| is_in(of)) && !part.except.iter().any(|except| is_in(except))
    };
    // Only what says so speaks of connecting.
    let of_connections =
        change.requests.get(&Axis::Protocol) == Some(&Extent(vec![Part::of("whole connections")]));
    if of_connections != (request.moment == Moment::Connect) {
        return false;
    }
    let host = |part: &Part| holds(part, &|text| host_is_in(text, &request.destination.host));
    change.hosts.0.iter().any(host)
        && change.requests.iter().all(|(axis, extent)| {
            extent
                .0
                .iter()
                .any(|part| holds(part, &|text| axis_is_in(axis, text, request, who)))
        })
}

/// What is compared, without the ranges that names may lead to.
fn outcomes(a: &Policy, b: &Policy, request: &Request, who: &Who) -> (Outcome, Outcome) {
    let point = crate::space::Point {
        request: request.clone(),
        who: who.clone(),
        at: now(),
    };
    let of = |policy: &Policy| {
        let rules = policy.rules.iter().enumerate();
        let candidates: Vec<crate::space::Candidate<'_>> = rules
            .map(|(number, rule)| crate::space::Candidate {
                side: 0,
                number,
                rule,
            })
            .collect();
        outcome::outcome(policy, &point, &candidates, &Vec::new(), &|name| name.to_owned()).0
    };
    (of(a), of(b))
}

/// Exactly the requests that differ lie in an entry, each in one, and what that says of them is true.
fn agree(a: &str, b: &str, requests: &[(Request, Who)]) -> Result<(), TestCaseError> {
    let (one, two) = (policy(a), policy(b));
    let diff = one.diff(&two, now());
    let context = || format!("{diff}\n--- a\n{a}\n--- b\n{b}");
    prop_assert!(diff.unknown.is_empty());
    let witnesses = diff
        .changes
        .iter()
        .map(|change| (change.witness.0.clone(), change.witness.1.clone()));
    for (request, who) in witnesses.chain(requests.iter().cloned()) {
        let (before, after) = outcomes(&one, &two, &request, &who);
        let same = match request.moment {
            Moment::Connect => before.unread == after.unread,
            _ => before == after,
        };
        let covering: Vec<&Change> = diff
            .changes
            .iter()
            .filter(|change| covers(change, &request, &who))
            .collect();
        prop_assert!(
            covering.len() <= 1,
            "{request:?} lies in {covering:#?}\n{}",
            context()
        );
        match covering.first() {
            None => prop_assert!(same, "{request:?} {who:?} is missing in\n{}", context()),
            Some(change) => {
                let bare = |outcome: &Outcome| Outcome {
                    private: Vec::new(),
                    ..outcome.clone()
                };
                prop_assert_eq!(
                    (bare(&change.before), bare(&change.after)),
                    (before, after),
                    "{:?} {:?} {}",
                    request,
                    who,
                    context()
                );
            }
        }
    }
    Ok(())
}

fn requests(hosts: &[&str], ports: &[u16], moments: &[Moment]) -> Vec<(Request, Who)> {
    let mut all = Vec::new();
    for (host, port) in hosts
        .iter()
        .flat_map(|host| ports.iter().map(move |port| (host, *port)))
    {
        for moment in moments {
            let destination = Destination {
                host: Host::parse(host).unwrap(),
                port,
            };
            let request = Request {
                destination,
                moment: moment.clone(),
            };
            let team = TEAMS[all.len() % TEAMS.len()];
            let who = Who {
                team: team.into(),
                ..Who::default()
            };
            all.push((request, who));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn exactly_what_differs_is_told(
        (a, b) in two_policies(),
        picks in prop::collection::vec((0..HOSTS.len(), 0..4_usize, any::<prop::sample::Index>(), 0..TEAMS.len()), 300),
    ) {
        let moments = moments();
        let sampled: Vec<(Request, Who)> = picks
            .into_iter()
            .map(|(host, port, moment, team)| {
                let destination = Destination { host: Host::parse(HOSTS[host]).unwrap(), port: [443, 80, 22, 8443][port] };
                let request = Request { destination, moment: moment.get(&moments).clone() };
                (request, Who { team: TEAMS[team].into(), ..Who::default() })
            })
            .collect();
        agree(&a, &b, &sampled)?;
        prop_assert!(policy(&a).diff(&policy(&a), now()).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn going_through_all_requests_of_a_tiny_world_finds_the_same((a, b) in two_policies()) {
        agree(&a, &b, &requests(&["a.test", "b.a.test", "10.1.2.3", "9.9.9.9"], &[443, 80, 22], &moments()))?;
    }
}
