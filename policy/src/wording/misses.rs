//! What a rule is about, told where a request is about something else.
use crate::document::Effect;
use crate::fit::{Miss, Unclear};
use crate::git::{self, Pushed};
use crate::host::shown;
use crate::path_pattern::PathPattern;
use crate::rule::Rule;
use crate::{GitAccess, Moment, Protocol, Request, Who};

/// How a rule that allows something on this host is narrower than what was asked: `for GET only`. `None` where that says nothing.
pub(crate) fn only(rule: &Rule, miss: Miss) -> Option<String> {
    Some(match miss {
        Miss::Host | Miss::Address(_) | Miss::Unclear(_) => return None,
        Miss::Port => format!("on port {} only", ports(&rule.ports)),
        Miss::Who => "for other runs only".to_owned(),
        Miss::Time => format!("only during {}", window(rule)),
        Miss::Protocol => match rule.protocol {
            Some(protocol @ (Protocol::Git | Protocol::Ssh | Protocol::Postgres)) => {
                format!("as `{}` only", protocol.as_str())
            }
            _ => "as HTTP or TLS only, not as an opaque stream".to_owned(),
        },
        Miss::Method => format!("for {} only", rule.methods.join(", ")),
        Miss::Path => format!("for {} only", some(&patterns(&rule.paths))),
        Miss::Header(number) => format!("with {} only", condition(rule, Unclear::Header(number))),
        Miss::Query(number) => format!("with {} only", condition(rule, Unclear::Query(number))),
        Miss::Repository => format!("for repository {} only", some(&repositories(rule))),
        Miss::Access => format!("to {} only", access(rule)),
        Miss::Ref => format!("for pushes to {} only", some(&patterns(&rule.git.refs))),
        Miss::Force => "without forced updates only".to_owned(),
        Miss::Database => format!("for database {} only", some(&rule.databases)),
        Miss::User => format!("as user {} only", some(&rule.users)),
    })
}

/// Why a rule does not match.
pub(crate) fn missed(rule: &Rule, miss: Miss, request: &Request, who: &Who) -> String {
    match miss {
        Miss::Host => {
            let hosts: Vec<String> = rule.hosts.iter().map(ToString::to_string).collect();
            format!("it names {}", some(&hosts))
        }
        Miss::Port => format!("port {} is not {}", request.destination.port, ports(&rule.ports)),
        Miss::Who => match rule.unmet_fact(who) {
            Some((fact, values)) => format!("{fact} is `{}`, not {}", shown(who.fact(fact)), some(values)),
            None => "it is for other runs".to_owned(),
        },
        Miss::Protocol => match rule.protocol {
            Some(Protocol::Tcp) => "it is about opaque streams",
            Some(Protocol::Tls) => "it is about TLS passed through unread",
            Some(Protocol::Git) => "it is about git",
            Some(Protocol::Ssh) => "it is about ssh",
            Some(Protocol::Postgres) => "it is about PostgreSQL",
            Some(Protocol::Http) | None => "it is about HTTP",
        }
        .to_owned(),
        Miss::Method => format!("the method is not {}", rule.methods.join(", ")),
        Miss::Path => format!("the path is not {}", some(&patterns(&rule.paths))),
        Miss::Header(number) => format!("the request has no {}", condition(rule, Unclear::Header(number))),
        Miss::Query(number) => format!("the query has no {}", condition(rule, Unclear::Query(number))),
        Miss::Repository => format!("the repository is not {}", some(&repositories(rule))),
        Miss::Access => format!("it is about git that wants to {}", access(rule)),
        Miss::Ref => missed_ref(rule, request),
        Miss::Force => match rule.git.force {
            Some(true) => "no update is forced".to_owned(),
            _ => "an update is forced".to_owned(),
        },
        Miss::Database => format!("the database is not {}", some(&rule.databases)),
        Miss::User => format!("the user is not {}", some(&rule.users)),
        Miss::Unclear(unclear) => format!(
            "it looks at {}, and allows none that can be read in more than one way",
            looked_at(rule, unclear)
        ),
        Miss::Time => format!("it holds only during {}", window(rule)),
        Miss::Address(class) => format!("it does not name this {class} address with `private: true`"),
    }
}

/// A deny or ask looks for one ref, an allow for one that is not its own.
fn missed_ref(rule: &Rule, request: &Request) -> String {
    let refs = some(&patterns(&rule.git.refs));
    match (rule.effect, is_push(request)) {
        (_, false) => "it is about the refs of a push, and this changes none".to_owned(),
        (Effect::Allow, true) => format!("a ref that the push changes is not {refs}"),
        (_, true) => format!("the push changes none of {refs}"),
    }
}

fn is_push(request: &Request) -> bool {
    let push = match &request.moment {
        Moment::Http(http) => git::over_http(http).and_then(|view| view.push),
        Moment::Ssh(ssh) => ssh.git.as_ref().and_then(|git| git::over_ssh(git).push),
        _ => None,
    };
    matches!(push, Some(Pushed::Refs(_)))
}

/// What a rule looks at that can be read in more than one way.
pub(crate) fn looked_at(rule: &Rule, unclear: Unclear) -> String {
    match unclear {
        Unclear::Path => "paths".to_owned(),
        Unclear::Header(number) => format!("header `{}`", name(rule, Unclear::Header(number))),
        Unclear::Query(number) => format!("query parameter `{}`", name(rule, Unclear::Query(number))),
        Unclear::Git(_) => "git".to_owned(),
    }
}

/// In which way it can.
pub(crate) fn doubt(unclear: Unclear, request: &Request) -> String {
    match (unclear, &request.moment) {
        (Unclear::Path, Moment::Http(http)) => http.path.ambiguity().unwrap_or_default().to_owned(),
        (Unclear::Git(why), _) => why.to_owned(),
        (Unclear::Query(_), _) => {
            "it stands there twice, in other case, or in a query that cannot be decoded".to_owned()
        }
        _ => "it stands there twice".to_owned(),
    }
}

/// Header or parameter with the values that will do.
fn condition(rule: &Rule, which: Unclear) -> String {
    let (what, conditions, number) = match which {
        Unclear::Query(number) => ("", &rule.query, number),
        Unclear::Header(number) => ("header ", &rule.headers, number),
        Unclear::Path | Unclear::Git(_) => return String::new(),
    };
    let Some(condition) = conditions.get(number) else {
        return String::new();
    };
    format!(
        "{what}`{}` with {}",
        shown(&condition.name),
        some(&condition.values)
    )
}

fn name(rule: &Rule, which: Unclear) -> String {
    let condition = match which {
        Unclear::Header(number) => rule.headers.get(number),
        Unclear::Query(number) => rule.query.get(number),
        Unclear::Path | Unclear::Git(_) => None,
    };
    condition
        .map(|condition| shown(&condition.name))
        .unwrap_or_default()
}

fn access(rule: &Rule) -> &'static str {
    match rule.git.access {
        Some(GitAccess::Read) => "fetch",
        _ => "push",
    }
}

fn patterns(patterns: &[PathPattern]) -> Vec<String> {
    patterns
        .iter()
        .map(|pattern| {
            let text = pattern.as_str();
            text.strip_prefix("/refs/")
                .map_or(text.to_owned(), |name| format!("refs/{name}"))
        })
        .collect()
}

fn repositories(rule: &Rule) -> Vec<String> {
    rule.git
        .repositories
        .iter()
        .map(|pattern| pattern.as_str().trim_start_matches('/').to_owned())
        .collect()
}

/// Its `during`.
fn window(rule: &Rule) -> String {
    rule.during
        .as_ref()
        .map(|during| format!("`{during}`"))
        .unwrap_or_default()
}

/// `443`, `80, 8000-8010`.
pub(crate) fn ports(ports: &[(u16, u16)]) -> String {
    let texts: Vec<String> = ports
        .iter()
        .map(|(low, high)| {
            if low == high {
                low.to_string()
            } else {
                format!("{low}-{high}")
            }
        })
        .collect();
    texts.join(", ")
}

/// The first few of a list.
fn some(texts: &[String]) -> String {
    const SHOWN: usize = 5;
    let listed: Vec<String> = texts
        .iter()
        .take(SHOWN)
        .map(|text| format!("`{}`", shown(text)))
        .collect();
    match texts.len().checked_sub(SHOWN) {
        None | Some(0) => listed.join(", "),
        Some(more) => format!("{} and {more} more", listed.join(", ")),
    }
}
