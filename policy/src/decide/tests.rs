//! The index finds what a walk over all rules finds, for any policy and any request.
use super::*;
use crate::{CanonicalPath, Destination, Grant, Host, HttpRequest, Layer, LayerTexts, PolicyText};
use proptest::prelude::*;

impl Policy {
    /// The answer of a walk over all rules: what the index must agree with.
    fn decide_walking(&self, question: Question<'_>) -> Decision {
        let mut weighed = Weighed::default();
        for (number, rule) in (0u32..).zip(self.rules.iter()) {
            if rule.names(&question.request.destination.host) {
                let fit = rule.fit(question.request, question.who, question.now);
                weighed.add(number, rule, fit, question);
            }
        }
        self.answer_from(&weighed, question)
    }
}

const HOSTS: &[&str] = &[
    "a.test",
    "b.a.test",
    "c.b.a.test",
    "ba.test",
    "test",
    "10.1.2.3",
    "10.1.2.4",
    "127.0.0.1",
    "9.9.9.9",
    "fd00::1",
    "2001:db8::1",
];
const PATTERNS: &[&str] = &[
    "a.test",
    "*.a.test",
    "*.test",
    "b.a.test",
    "*.b.a.test",
    "*",
    "10.0.0.0/8",
    "10.1.2.0/24",
    "10.1.2.3",
    "9.9.9.9",
    "0.0.0.0/0",
    "fd00::/8",
    "fd00::1",
    "::/0",
    "test.",
];
const PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b/c",
    "/a/b/a/b",
    "/ab",
    "/ab/cb",
    "/a-x-b",
    "/v1/a",
    "/v1/b/a",
    "/a//b",
    "/a%2Fb",
    "/a;x",
    "/a/b.git/info/refs",
    "/a/b/git-receive-pack",
    "/a%2Fb/c",
    "/axb/b",
    "/b/b/b/b",
];
const PATH_PATTERNS: &[&str] = &[
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/{x}",
    "/{x}/b",
    "/*",
    "/**",
    "/a/**",
    "/**/b",
    "/**/a/**",
    "/**/a/**/b",
    "/a*",
    "/*b",
    "/a*b",
    "/a*x*b",
    "/*-*",
    "/v1/{x}",
    "/v1/**",
    "/**/{x}/b",
    "/{x}/{y}",
    "/**/**",
    "/a/**/**/b",
    "/a*/b",
    "/**/*b",
];
const CONDITIONS: &[&str] = &[
    ", query: {q: '1*'}",
    ", headers: {accept: ['text/*', a]}",
    ", headers: {accept: a}, query: {q: ['2', '*3']}",
];
const QUERIES: &[&str] = &["", "q=1", "q=13&x=2", "q=1&q=2", "service=git-upload-pack", "q=%"];
const WHO: &[&str] = &["", ", who: {team: web}", ", who: {team: [ops, 'w*']}"];
const PORTS: &[&str] = &["", ", port: 443", ", port: [80, 443]", ", port: \"1-9999\""];
const MODES: &[&str] = &["", "", "", ", mode: observe"];
const WIDEN: &[&str] = &[
    "",
    "",
    ", widen: [team]",
    ", widen: [run]",
    ", widen: [team, run]",
];
const TERMS: &[&str] = &["", "", ", grantable: {by: rule}", ", grantable: {by: person}"];

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    (0..texts.len()).prop_map(move |at| texts[at])
}

/// A rule without its id.
fn rule() -> impl Strategy<Value = String> {
    let fine = prop_oneof![
        1 => Just(String::new()),
        1 => Just(", methods: [GET]".to_owned()),
        6 => one_of(PATH_PATTERNS).prop_map(|path| format!(", path: '{path}'")),
        2 => one_of(PATH_PATTERNS).prop_map(|path| format!(", path: '{path}', encoded-slash: true")),
        2 => (one_of(PATH_PATTERNS), one_of(CONDITIONS))
            .prop_map(|(path, condition)| format!(", path: '{path}'{condition}")),
        1 => one_of(CONDITIONS).prop_map(str::to_owned),
        1 => Just(", protocol: git, repository: 'a/*', access: read".to_owned()),
        3 => (one_of(PATH_PATTERNS), one_of(PATH_PATTERNS))
            .prop_map(|(a, b)| format!(", methods: [GET, PUT], path: ['{a}', '{b}']")),
    ];
    let place = (prop::collection::vec(one_of(PATTERNS), 1..3), one_of(PORTS), fine)
        .prop_map(|(hosts, port, fine)| format!("host: ['{}']{port}{fine}", hosts.join("', '")));
    let refusing =
        (one_of(MODES), one_of(WIDEN), one_of(TERMS), any::<bool>()).prop_map(|(mode, widen, terms, ask)| {
            match ask {
                true => format!("effect: ask{mode}{widen}"),
                false => format!("effect: deny{mode}{widen}{terms}"),
            }
        });
    let effect = prop_oneof![2 => Just("effect: allow".to_owned()), 1 => refusing];
    let private = prop_oneof![4 => Just(""), 1 => Just(", private: true")];
    let ordinary = (place, private, one_of(WHO), effect).prop_map(|(place, private, who, effect)| {
        let names_addresses = ["10.", "9.9", "fd00", "::/0", "0.0"]
            .iter()
            .any(|part| place.contains(part));
        let private = if names_addresses && !effect.starts_with("effect: deny") {
            private
        } else {
            ""
        };
        format!("to: {{{place}{private}}}{who}, {effect}")
    });
    let unread = (one_of(PATTERNS), prop_oneof![Just("tcp"), Just("tls")]).prop_map(|(host, protocol)| {
        format!("to: {{host: ['{host}'], port: [80, 443], protocol: {protocol}}}, effect: allow")
    });
    prop_oneof![6 => ordinary, 1 => unread]
}

/// What comes before the rules, for a layer that has one above.
fn head(is_top: bool) -> impl Strategy<Value = String> {
    let default = if is_top {
        &["deny", "deny", "allow"][..]
    } else {
        &["deny", "inherit", "allow"][..]
    };
    let widen = prop_oneof![Just(""), Just("widen: {reach: [team, run]}\n")];
    let mode = prop_oneof![4 => Just("enforce"), 1 => Just("observe")];
    (one_of(default), mode, widen)
        .prop_map(|(default, mode, widen)| format!("version: 1\ndefault: {default}\nmode: {mode}\n{widen}"))
}

fn layers() -> impl Strategy<Value = Vec<LayerTexts>> {
    let layer = |layer: Layer, is_top: bool| {
        (head(is_top), prop::collection::vec(rule(), 0..60))
            .prop_map(move |(head, rules)| text(layer, &head, &rules))
    };
    let one = layer(Layer::Run, true).prop_map(|only| vec![only]);
    let three = (
        layer(Layer::Organisation, true),
        layer(Layer::Team, false),
        layer(Layer::Run, false),
    )
        .prop_map(|(top, team, run)| vec![run, top, team]);
    prop_oneof![one, three]
}

fn text(layer: Layer, head: &str, rules: &[String]) -> LayerTexts {
    let mut text = format!("{head}rules:\n");
    for (number, rule) in rules.iter().enumerate() {
        let rule = match layer {
            Layer::Organisation => rule.clone(),
            Layer::Team => rule.replace("[team, run]", "[run]").replace("[team]", "[run]"),
            // Nothing is below a run.
            _ => WIDEN
                .iter()
                .rev()
                .fold(rule.clone(), |rule, widen| match widen.is_empty() {
                    true => rule,
                    false => rule.replace(widen, ""),
                }),
        };
        text.push_str(&format!("  - {{id: {layer}-{number}, {rule}}}\n"));
    }
    let text = match layer {
        Layer::Organisation => text,
        Layer::Team => text.replace("{reach: [team, run]}", "{reach: [run]}"),
        _ => text.replace("widen: {reach: [team, run]}\n", ""),
    };
    let name = format!("{layer}.yaml");
    LayerTexts {
        layer,
        texts: vec![PolicyText { name, text }],
    }
}

fn request() -> impl Strategy<Value = Request> {
    let accept = prop::collection::vec(one_of(&["a", "text/html", "b"]), 0..3);
    let http = (
        one_of(&["GET", "PUT"]),
        one_of(PATHS),
        one_of(QUERIES),
        accept,
        any::<bool>(),
    )
        .prop_map(|(method, path, query, accept, tls)| {
            let path = CanonicalPath::parse(path).unwrap();
            let query = Some(query.to_owned()).filter(|query| !query.is_empty());
            let mut http = HttpRequest::new(method, path, query, tls);
            http.headers = accept
                .into_iter()
                .map(|value| ("accept".to_owned(), value.to_owned()))
                .collect();
            Moment::Http(http)
        });
    let moment = prop_oneof![1 => Just(Moment::Connect), 1 => Just(Moment::Opaque), 4 => http];
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

fn grants(rules: &[String], request: &Request) -> Overlay {
    let grant = |rule: &String| Grant {
        credential: None,
        id: format!("g-{rule}"),
        rule: rule.clone(),
        host: request.destination.host.to_string(),
        port: request.destination.port,
        methods: Vec::new(),
        path: None,
        uses: None,
        expires_at: jiff::Timestamp::MAX,
        by: "ann".into(),
    };
    Overlay {
        grants: rules.iter().map(grant).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_a_walk_finds(
        layers in layers(),
        requests in prop::collection::vec(request(), 1..30),
        granted in prop::collection::vec(("(organisation|team|run)", 0usize..60), 0..3),
        team in prop_oneof![Just(""), Just("web")],
    ) {
        let policy = match Policy::compile_layers(&layers) {
            Ok(policy) => policy,
            Err(problems) => return Err(TestCaseError::fail(format!("{problems:?}"))),
        };
        let who = Who { team: team.into(), ..Who::default() };
        let granted: Vec<String> = granted.iter().map(|(layer, number)| format!("{layer}-{number}")).collect();
        for request in &requests {
            let overlay = grants(&granted, request);
            let now = jiff::Timestamp::UNIX_EPOCH;
            let question = Question { request, who: &who, overlay: &overlay, now, without: &[] };
            let (found, walked) = (policy.decide(request, &who, &overlay, now), policy.decide_walking(question));
            prop_assert_eq!(format!("{:?}", told(&found, request)), format!("{:?}", told(&walked, request)), "{:?}\n{:#?}", request, layers);
        }
    }
}

/// All that can be seen of an answer.
fn told(decision: &Decision, request: &Request) -> (crate::Verdict, Option<String>) {
    let seen = match decision {
        Decision::Allow(permit) => {
            let addresses = ["127.0.0.1", "10.1.2.3", "fd00::1", "9.9.9.9"];
            let admitted = addresses.map(|address| permit.admits_address(address.parse().unwrap()).is_ok());
            Some(format!(
                "{:?} {:?} {admitted:?}",
                permit.protocol(),
                permit.observed()
            ))
        }
        _ => None,
    };
    (crate::Verdict::of(decision.clone(), request), seen)
}
