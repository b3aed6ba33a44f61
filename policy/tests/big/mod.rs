//! Policies of the sizes and shapes that figures are about.
use sallyport_policy::{CanonicalPath, Destination, HttpRequest, Moment, Policy, PolicyText, Request};
use std::fmt::Write as _;

/// Hosts of each rule of [`big`], nine names and one domain.
const HOSTS_EACH: usize = 10;

/// `rules` rules of all effects with ten hosts each; the rule `r7` names `h0.z7.test` and `*.w7.test`.
pub(crate) fn big(rules: usize) -> String {
    let mut text = String::from(
        "version: 1\ncredentials: {token: {from: {store: token}, hosts: ['*.test'], in: [bearer], env: TOKEN}}\nrules:\n",
    );
    for rule in 0..rules {
        let mut hosts: Vec<String> = (1..HOSTS_EACH)
            .map(|host| format!("h{}.z{rule}.test", host - 1))
            .collect();
        hosts.push(format!("'*.w{rule}.test'"));
        let rest = match rule % 10 {
            0..5 => "methods: [GET, HEAD]}, use: [token], effect: allow",
            5..7 => "path: ['/v1/{team}/**', /health]}, effect: allow",
            7 => "methods: [GET]}, effect: allow, limit: {connections: 4}",
            8 => "methods: [PUT]}, effect: ask",
            _ => "methods: [DELETE]}, effect: deny",
        };
        let _ = writeln!(
            text,
            "  - {{id: r{rule}, to: {{host: [{}], {rest}}}",
            hosts.join(", ")
        );
    }
    text
}

/// One host with so many rules, each with a path of its own.
pub(crate) fn paths(rules: usize) -> String {
    let mut text = String::from("version: 1\nrules:\n");
    for rule in 0..rules {
        let path = match rule % 4 {
            0 => format!("/repos/team-{rule}/**"),
            1 => format!("/v1/{{x}}/items-{rule}"),
            2 => format!("/**/deep-{rule}/*"),
            _ => format!("/files/part-{rule}-*"),
        };
        let effect = if rule % 10 == 9 { "deny" } else { "allow" };
        let _ = writeln!(
            text,
            "  - {{id: p{rule}, to: {{host: api.test, path: '{path}'}}, effect: {effect}}}"
        );
    }
    text
}

/// So many rules that name every host, each with a path of its own.
pub(crate) fn stars(rules: usize) -> String {
    let mut text = String::from("version: 1\nrules:\n");
    for rule in 0..rules {
        let _ = writeln!(
            text,
            "  - {{id: s{rule}, to: {{host: '*', methods: [GET], path: '/p{rule}/**'}}, effect: allow}}"
        );
    }
    text
}

/// Compiles a text, which must be right.
pub(crate) fn compile(text: String) -> Policy {
    let name = "big.yaml".into();
    Policy::compile(&[PolicyText { name, text }]).expect("a right policy")
}

/// An HTTPS request.
pub(crate) fn http(method: &str, host: &str, path: &str) -> Request {
    let path = CanonicalPath::parse(path).expect("a path");
    Request {
        destination: Destination::parse(&format!("{host}:443")).expect("a destination"),
        moment: Moment::Http(HttpRequest::new(method, path, None, true)),
    }
}

/// A connection.
pub(crate) fn connect(host: &str) -> Request {
    Request {
        destination: Destination::parse(&format!("{host}:443")).expect("a destination"),
        moment: Moment::Connect,
    }
}

/// A name of as many labels as a name can have, under a domain.
pub(crate) fn deep(domain: &str) -> String {
    let labels = (253 - domain.len()) / 2;
    format!("{}{domain}", "a.".repeat(labels))
}
