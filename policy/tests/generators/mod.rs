//! Policies and requests of every kind, out of few names, so that they meet often.
use proptest::prelude::*;
use sallyport_policy::{
    CanonicalPath, Destination, GitAccess, GitRequest, Host, HttpRequest, Moment, PostgresRequest, RefUpdate,
    Request, SshRequest,
};

const HOSTS: &[&str] = &[
    "a.test",
    "b.a.test",
    "c.b.a.test",
    "x.test",
    "10.1.2.3",
    "127.0.0.1",
    "9.9.9.9",
    "[fd00::1]",
];
const PATTERNS: &[&str] = &[
    "a.test",
    "\"*.a.test\"",
    "\"*.test\"",
    "x.test",
    "\"*\"",
    "10.0.0.0/8",
    "127.0.0.1",
    "\"fd00::/8\"",
    "9.9.9.9",
];
const METHODS: &[&str] = &["GET", "PUT", "POST"];
const PATHS: &[&str] = &[
    "/a",
    "/a/b",
    "/a//b",
    "/",
    "/b%2fa",
    "/b%2f../a",
    "/acme/web.git/info/refs",
    "/acme/web/git-upload-pack",
    "/acme/web.git/git-receive-pack",
    "/lib/x/git-receive-pack",
    "/acme%2fweb.git/git-receive-pack",
];
const QUERIES: &[&str] = &[
    "service=git-upload-pack",
    "service=git-receive-pack",
    "q=1",
    "q=1&Q=2",
    "q=%zz",
    "x=y",
];
const PORTS: &[&str] = &["", ", port: 443", ", port: [80, 443]", ", port: \"1-9999\""];
/// Matchers that go with every effect.
const MATCHERS: &[&str] = &[
    "",
    "",
    ", protocol: http",
    ", methods: [GET]",
    ", methods: [PUT, POST]",
    ", path: \"/a\"",
    ", path: \"/a/**\"",
    ", path: [\"/**/b\", \"/{x}\"]",
    ", path: \"/*b\"",
    ", path: \"/*%2F*\", encoded-slash: true",
    ", path: \"/{x}\", encoded-slash: true",
    ", headers: {accept: \"application/*\"}",
    ", query: {q: \"*\"}",
    ", methods: [GET], path: \"/**\", query: {q: \"1\"}, headers: {accept: \"*\"}",
    ", protocol: git",
    ", protocol: git, repository: \"acme/*\"",
    ", protocol: git, access: read",
    ", protocol: git, repository: [\"acme/web\", \"lib/**\"], access: write",
    ", protocol: git, refs: [\"agent/**\"]",
    ", protocol: git, repository: \"**\", access: write, refs: [main]",
    ", protocol: ssh",
    ", protocol: ssh, user: \"a*\"",
    ", protocol: postgres",
    ", protocol: postgres, database: \"shop*\", user: agent",
];
const HOURS: &[&str] = &[
    "",
    "",
    "",
    ", during: {hours: \"00:00-12:00\", zone: UTC}",
    ", during: {hours: \"12:00-13:00\", zone: UTC}",
    ", during: {days: sat-sun, zone: UTC}",
];

pub(crate) fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    (0..texts.len()).prop_map(move |at| texts[at])
}

/// One rule as YAML, without id.
pub(crate) fn rule(effect: &'static str) -> impl Strategy<Value = String> {
    let forced = match effect {
        "allow" => ", protocol: git, refs: [\"agent/**\"], force: false",
        _ => ", protocol: git, force: true",
    };
    let unread = match effect {
        "allow" => &[
            ", port: [22, 80, 443], protocol: tcp",
            ", port: [80, 443], protocol: tls",
        ][..],
        _ => &[", port: [22, 80, 443], protocol: tcp"][..],
    };
    let place = prop_oneof![
        8 => (one_of(PORTS), one_of(MATCHERS)).prop_map(|(port, matcher)| format!("{port}{matcher}")),
        1 => one_of(PORTS).prop_map(move |port| format!("{port}{forced}")),
        1 => one_of(unread).prop_map(str::to_owned),
    ];
    let mode = match effect {
        "allow" => &[""][..],
        _ => &["", "", "", ", mode: observe"][..],
    };
    (one_of(PATTERNS), place, one_of(HOURS), one_of(mode)).prop_map(move |(host, place, hours, mode)| {
        format!("to: {{host: [{host}]{place}}}, effect: {effect}{hours}{mode}")
    })
}

pub(crate) fn any_rule() -> impl Strategy<Value = String> {
    prop_oneof![4 => rule("allow"), 1 => rule("ask"), 1 => rule("deny")]
}

pub(crate) fn document(rules: &[String]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .enumerate()
        .map(|(number, rule)| format!("  - {{id: r{number}, {rule}}}\n"))
        .collect();
    format!("version: 1\nrules:\n{}", rules.concat())
}

/// The refs that a push changes, also none, or not known.
pub(crate) fn pushed() -> impl Strategy<Value = Option<Vec<RefUpdate>>> {
    let name = prop_oneof![
        Just("refs/heads/agent/x"),
        Just("refs/heads/main"),
        Just("refs/tags/v1")
    ];
    let update = (name, any::<bool>()).prop_map(|(name, forced)| RefUpdate {
        name: name.to_owned(),
        forced,
    });
    prop::option::of(prop::collection::vec(update, 0..3))
}

fn http() -> impl Strategy<Value = Moment> {
    let accept = |value: &str| ("accept".to_owned(), value.to_owned());
    let headers = prop_oneof![
        Just(Vec::new()),
        Just(vec![accept("application/json")]),
        Just(vec![accept("text/html")]),
        Just(vec![accept("application/json"), accept("text/html")]),
    ];
    let query = prop::option::of(one_of(QUERIES).prop_map(str::to_owned));
    let request = (
        one_of(METHODS),
        one_of(PATHS),
        query,
        any::<bool>(),
        headers,
        pushed(),
    );
    request.prop_map(|(method, path, query, tls, headers, pushed)| {
        Moment::Http(HttpRequest {
            method: method.into(),
            path: CanonicalPath::parse(path).expect("a path"),
            query,
            tls,
            headers,
            pushed,
        })
    })
}

fn ssh() -> impl Strategy<Value = Moment> {
    let repository = prop_oneof![Just("acme/web.git"), Just("/lib/x"), Just("acme/../lib/x")];
    let access = prop_oneof![Just(GitAccess::Read), Just(GitAccess::Write)];
    let git = (repository, access, pushed()).prop_map(|(repository, access, pushed)| GitRequest {
        repository: repository.to_owned(),
        access,
        pushed,
    });
    (prop_oneof![Just("agent"), Just("git")], prop::option::of(git)).prop_map(|(user, git)| {
        Moment::Ssh(SshRequest {
            user: user.to_owned(),
            git,
        })
    })
}

fn postgres() -> impl Strategy<Value = Moment> {
    let names = (
        prop_oneof![Just("shop"), Just("other")],
        prop_oneof![Just("agent"), Just("root")],
    );
    names.prop_map(|(database, user)| {
        Moment::Postgres(PostgresRequest {
            database: database.to_owned(),
            user: user.to_owned(),
        })
    })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let moment = prop_oneof![
        1 => Just(Moment::Connect),
        1 => Just(Moment::Opaque),
        5 => http(),
        2 => ssh(),
        1 => postgres(),
    ];
    let port = prop_oneof![4 => Just(443), 1 => Just(80), 2 => Just(22), 1 => Just(5432)];
    (one_of(HOSTS), port, moment).prop_map(|(host, port, moment)| Request {
        destination: Destination {
            host: Host::parse(host).expect("a host"),
            port,
        },
        moment,
    })
}
