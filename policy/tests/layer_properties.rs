//! What holds for any layers: a lower one never allows more than is left to it, and what is only observed opens nothing secret.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use proptest::prelude::*;
use sallyport_policy::{
    CanonicalPath, Decision, Destination, Host, HttpRequest, Layer, LayerTexts, Moment, Overlay, Policy,
    PolicyText, Request, Who,
};

const HOSTS: &[&str] = &["a.test", "b.a.test", "x.test", "10.1.2.3", "127.0.0.1", "9.9.9.9"];
const PATTERNS: &[&str] = &["a.test", "'*.a.test'", "'*.test'", "x.test", "'*'", "9.9.9.9"];
const SPECIAL: &[&str] = &[
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "fd00::1",
    "::ffff:127.0.0.1",
];
const FINE: &[&str] = &[
    "",
    ", methods: [GET]",
    ", methods: [PUT]",
    ", path: '/a'",
    ", path: '/a/**'",
    ", path: '/*b', methods: [GET, PUT]",
    ", protocol: http",
    ", path: '/a', query: {q: '1*'}",
    ", headers: {accept: text}",
    ", path: ['/a', '/a/*'], encoded-slash: true",
    ", protocol: git, repository: 'a*', access: read",
];
const PORTS: &[&str] = &["", "", ", port: 443", ", port: [80, 443]"];
const DURING: &[&str] = &[
    "",
    "",
    ", during: {days: mon-fri, hours: '07:00-20:00', zone: Etc/UTC}",
    ", during: {days: [thu], hours: '00:00-23:00', zone: Etc/UTC}",
];
const TERMS: &[&str] = &["", "", ", grantable: {by: rule}", ", grantable: {by: person}"];
const LIMITS: &[&str] = &["", "", ", limit: {connections: 2}"];
const CREDENTIALS: &str =
    "credentials: {c: {from: {store: c}, hosts: ['*.test', a.test, x.test], in: [bearer], env: C}}\n";

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    (0..texts.len()).prop_map(move |at| texts[at])
}

fn allow() -> impl Strategy<Value = String> {
    let ordinary = (
        one_of(PATTERNS),
        one_of(PORTS),
        one_of(FINE),
        one_of(DURING),
        one_of(LIMITS),
        any::<bool>(),
    )
        .prop_map(|(host, port, fine, during, limit, uses)| {
            let uses = if uses { ", use: [c]" } else { "" };
            format!("to: {{host: [{host}]{port}{fine}}}{during}{limit}{uses}, effect: allow")
        });
    let unread = (one_of(PATTERNS), prop_oneof![Just("tcp"), Just("tls")]).prop_map(|(host, protocol)| {
        format!("to: {{host: [{host}], port: [80, 443], protocol: {protocol}}}, effect: allow")
    });
    let private = one_of(FINE)
        .prop_map(|fine| format!("to: {{host: [10.0.0.0/8, 'a.test'], private: true{fine}}}, effect: allow"));
    prop_oneof![4 => ordinary, 1 => unread, 1 => private]
}

/// A rule that refuses, without `widen`.
fn refuse(ask: bool) -> impl Strategy<Value = String> {
    (
        one_of(PATTERNS),
        one_of(PORTS),
        one_of(FINE),
        one_of(DURING),
        one_of(TERMS),
    )
        .prop_map(move |(host, port, fine, during, terms)| match ask {
            true => format!("to: {{host: [{host}]{port}{fine}}}{during}, effect: ask"),
            false => format!("to: {{host: [{host}]{port}{fine}}}{during}{terms}, effect: deny"),
        })
}

/// `widen` at the end of a rule that refuses.
fn rule(widen: &'static [&'static str], modes: &'static [&'static str]) -> impl Strategy<Value = String> {
    let refusing = prop_oneof![refuse(true), refuse(false)];
    let refusing = (refusing, one_of(widen), one_of(modes))
        .prop_map(|(rule, widen, mode)| format!("{rule}{widen}{mode}"));
    prop_oneof![3 => allow(), 2 => refusing]
}

/// A layer's rules under a head.
#[derive(Debug, Clone)]
struct Part {
    layer: Layer,
    head: String,
    rules: Vec<String>,
}

impl Part {
    fn texts(&self) -> LayerTexts {
        let layer = self.layer;
        let rules = self.rules.iter().enumerate();
        let rules: String = rules
            .map(|(number, rule)| format!("  - {{id: {layer}-{number}, {rule}}}\n"))
            .collect();
        LayerTexts {
            layer,
            texts: vec![PolicyText {
                name: format!("{layer}.yaml"),
                text: format!("version: 1\n{}rules:\n{rules}", self.head),
            }],
        }
    }
}

const STILL: &[&str] = &[""];
const OBSERVING: &[&str] = &["", "", "", ", mode: observe"];
const ENFORCE: &[&str] = &["mode: enforce\n"];
const EITHER: &[&str] = &["mode: enforce\n", "mode: enforce\n", "mode: observe\n"];

fn top(
    widen: &'static [&'static str],
    reach: &'static [&'static str],
    document: &'static [&'static str],
    modes: &'static [&'static str],
) -> impl Strategy<Value = Part> {
    let default = prop_oneof![3 => Just("default: deny\n"), 1 => Just("default: allow\n")];
    (
        default,
        one_of(reach),
        one_of(document),
        prop::collection::vec(rule(widen, modes), 0..6),
    )
        .prop_map(|(default, reach, document, rules)| Part {
            layer: Layer::Organisation,
            head: format!("{default}{reach}{document}{CREDENTIALS}"),
            rules,
        })
}

fn team(document: &'static [&'static str], modes: &'static [&'static str]) -> impl Strategy<Value = Part> {
    let default = prop_oneof![
        Just("default: deny\n"),
        Just("default: inherit\n"),
        Just("default: allow\n")
    ];
    (
        default,
        one_of(document),
        prop::collection::vec(rule(STILL, modes), 0..6),
    )
        .prop_map(|(default, document, rules)| Part {
            layer: Layer::Team,
            head: format!("{default}{document}"),
            rules,
        })
}

fn compile(parts: &[&Part]) -> Result<Policy, TestCaseError> {
    let layers: Vec<LayerTexts> = parts.iter().map(|part| part.texts()).collect();
    Policy::compile_layers(&layers)
        .map_err(|problems| TestCaseError::fail(format!("{problems:?}\n{layers:#?}")))
}

fn request() -> impl Strategy<Value = Request> {
    let paths = one_of(&[
        "/a",
        "/a/b",
        "/",
        "/a//b",
        "/a;b",
        "/a%2Fb",
        "/a/b/git-upload-pack",
    ]);
    let queries = one_of(&["", "q=1", "q=2", "q=1&q=2"]);
    let accept = prop::collection::vec(one_of(&["text", "other"]), 0..3);
    let http = (one_of(&["GET", "PUT"]), paths, queries, accept, any::<bool>()).prop_map(
        |(method, path, query, accept, tls)| {
            let query = Some(query.to_owned()).filter(|query| !query.is_empty());
            let mut http = HttpRequest::new(method, CanonicalPath::parse(path).unwrap(), query, tls);
            http.headers = accept
                .into_iter()
                .map(|value| ("accept".to_owned(), value.to_owned()))
                .collect();
            Moment::Http(http)
        },
    );
    let moment = prop_oneof![1 => Just(Moment::Connect), 1 => Just(Moment::Opaque), 3 => http];
    (one_of(HOSTS), prop_oneof![4 => Just(443), 1 => Just(80)], moment).prop_map(|(host, port, moment)| {
        Request {
            destination: Destination {
                host: Host::parse(host).unwrap(),
                port,
            },
            moment,
        }
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec(request(), 1..20)
}

fn decide(policy: &Policy, request: &Request) -> Decision {
    policy.decide(
        request,
        &Who::default(),
        &Overlay::default(),
        jiff::Timestamp::UNIX_EPOCH,
    )
}

/// How much an answer lets pass.
fn rank(decision: &Decision) -> u8 {
    match decision {
        Decision::Deny(_) => 0,
        Decision::Ask(_) => 1,
        Decision::Inspect => 2,
        Decision::Allow(_) => 3,
    }
}

/// The special addresses that an answer lets be dialled.
fn opened(decision: &Decision) -> Vec<&'static str> {
    let Decision::Allow(permit) = decision else {
        return Vec::new();
    };
    let admitted = |address: &&&str| permit.admits_address(address.parse().unwrap()).is_ok();
    SPECIAL.iter().filter(admitted).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lower_layer_never_allows_more_than_the_upper_alone(
        top in top(&["", ", widen: [run]"], &["", "widen: {reach: [run]}\n"], EITHER, OBSERVING),
        team in team(EITHER, OBSERVING),
        requests in requests(),
    ) {
        let alone = compile(&[&top])?;
        let both = compile(&[&top, &team])?;
        for request in &requests {
            let (alone, both) = (decide(&alone, request), decide(&both, request));
            prop_assert!(rank(&both) <= rank(&alone), "{request:?}: {alone:?} became {both:?}\n{top:#?}{team:#?}");
            let before = opened(&alone);
            prop_assert!(opened(&both).iter().all(|address| before.contains(address)), "{request:?}\n{top:#?}{team:#?}");
        }
    }

    #[test]
    fn widening_allows_only_what_is_left_to_the_layer_and_what_that_layer_allows_itself(
        top in top(&["", ", widen: [team]"], &["", "widen: {reach: [team]}\n"], ENFORCE, STILL),
        team in team(ENFORCE, STILL),
        requests in requests(),
    ) {
        let alone = compile(&[&top])?;
        let team_alone = compile(&[&Part { head: team.head.replace("inherit", "deny") + CREDENTIALS, ..team.clone() }])?;
        let both = compile(&[&top, &team])?;
        for request in &requests {
            let (above, below, both) = (decide(&alone, request), decide(&team_alone, request), decide(&both, request));
            if rank(&both) <= rank(&above) {
                continue;
            }
            prop_assert!(rank(&both) <= rank(&below), "{request:?}: {above:?}, {below:?} became {both:?}\n{top:#?}{team:#?}");
            let (Decision::Deny(refusal) | Decision::Ask(refusal)) = &above else {
                return Err(TestCaseError::fail(format!("{request:?}: {above:?} became {both:?}")));
            };
            let left = match refusal.reason.rule.strip_prefix("organisation-") {
                Some(number) => top.rules[number.parse::<usize>().unwrap()].contains("widen: [team]"),
                // A finer rule that may be widened is not told at connect, where it does not know yet.
                None => {
                    let finer = |rule: &String| rule.contains("widen: [team]");
                    top.head.contains("reach: [team]") || (request.moment == Moment::Connect && top.rules.iter().any(finer))
                }
            };
            prop_assert!(left, "{request:?}: {above:?} became {both:?}\n{top:#?}{team:#?}");
        }
    }

    #[test]
    fn one_more_deny_in_any_layer_never_allows_more(
        top in top(&["", ", widen: [team]"], &["", "widen: {reach: [team]}\n"], EITHER, OBSERVING),
        team in team(EITHER, OBSERVING),
        deny in refuse(false),
        above in any::<bool>(),
        requests in requests(),
    ) {
        let before = compile(&[&top, &team])?;
        let (mut more_top, mut more_team) = (top.clone(), team.clone());
        if above { &mut more_top } else { &mut more_team }.rules.push(deny);
        let after = compile(&[&more_top, &more_team])?;
        for request in &requests {
            let (before, after) = (decide(&before, request), decide(&after, request));
            prop_assert!(rank(&after) <= rank(&before), "{request:?}: {before:?} became {after:?}\n{more_top:#?}{more_team:#?}");
        }
    }

    #[test]
    fn what_layers_refuse_at_connect_is_never_allowed_later(
        top in top(&["", ", widen: [team]"], &["", "widen: {reach: [team]}\n"], EITHER, OBSERVING),
        team in team(EITHER, OBSERVING),
        requests in requests(),
    ) {
        let policy = compile(&[&top, &team])?;
        for request in &requests {
            let connect = Request { destination: request.destination.clone(), moment: Moment::Connect };
            if rank(&decide(&policy, &connect)) == 0 {
                let later = decide(&policy, request);
                prop_assert_eq!(rank(&later), 0, "{:?}: {:?}\n{:#?}{:#?}", request, later, top, team);
            }
        }
    }

    #[test]
    fn what_only_observation_lets_pass_carries_no_credential_and_opens_no_special_address(
        top in top(&[""], &[""], EITHER, STILL),
        team in team(EITHER, STILL),
        requests in requests(),
    ) {
        let policy = compile(&[&top, &team])?;
        for request in &requests {
            let answer = decide(&policy, request);
            if let Decision::Allow(permit) = &answer
                && permit.observed().is_some()
            {
                prop_assert!(permit.credentials().is_empty() && !permit.carries("c"));
                prop_assert_eq!(opened(&answer), Vec::<&str>::new());
                let special = matches!(permit.destination().host, Host::Address(address) if sallyport_policy::classify(address).is_some());
                prop_assert!(!special, "{request:?}\n{top:#?}{team:#?}");
            }
        }
    }

    #[test]
    fn explaining_layers_agrees_with_deciding(
        top in top(&["", ", widen: [team]"], &["", "widen: {reach: [team]}\n"], EITHER, OBSERVING),
        team in team(EITHER, OBSERVING),
        request in request(),
    ) {
        let policy = compile(&[&top, &team])?;
        let explanation = policy.explain(&request, &Who::default(), &Overlay::default(), jiff::Timestamp::UNIX_EPOCH);
        let word = ["deny", "ask", "inspect", "allow"][usize::from(rank(&decide(&policy, &request)))];
        prop_assert_eq!(&explanation.verdict.decision, word);
        prop_assert_eq!(explanation.rules.len(), top.rules.len() + team.rules.len());
    }
}
