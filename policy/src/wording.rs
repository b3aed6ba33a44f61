//! The sentences in which decisions are told.
use crate::address::classify;
use crate::document::Effect;
use crate::host::shown;
use crate::rule::{Fit, Miss, Rule};
use crate::{Destination, GitAccess, Grant, Host, Layer, Moment, Protocol, Refusal, Request, Who};

/// Whether an address literal lies in a special range.
pub(crate) fn is_special(host: &Host) -> bool {
    matches!(host, Host::Address(address) if classify(*address).is_some())
}

/// What was asked for: `` `GET https://host/path` ``, or where to. Without the query, which may hold what nobody should read.
pub(crate) fn subject(request: &Request) -> String {
    let destination = &request.destination;
    match &request.moment {
        Moment::Connect => format!("a connection to `{destination}`"),
        Moment::Opaque => format!("an opaque stream to `{destination}`"),
        Moment::Ssh(ssh) => match &ssh.git {
            Some(git) => format!(
                "`{} {}` over ssh to `{destination}`",
                match git.access {
                    GitAccess::Read => "git fetch",
                    GitAccess::Write => "git push",
                },
                shown(&git.repository)
            ),
            None => format!("ssh to `{}@{destination}`", shown(&ssh.user)),
        },
        Moment::Postgres(login) => format!(
            "database `{}` at `{destination}` as `{}`",
            shown(&login.database),
            shown(&login.user)
        ),
        Moment::Http(http) => {
            let (scheme, usual) = if http.tls { ("https", 443) } else { ("http", 80) };
            format!(
                "`{} {scheme}://{}{}`",
                shown(&http.method),
                authority(destination, usual),
                shown(http.path.as_str())
            )
        }
    }
}

fn authority(destination: &Destination, usual: u16) -> String {
    match destination.port == usual {
        true => destination.host.in_url(),
        false => destination.to_string(),
    }
}

pub(crate) fn allowed(rule: &Rule, request: &Request) -> String {
    format!("rule `{}` allows {}", rule.id, subject(request))
}

pub(crate) fn by_default(request: &Request) -> String {
    format!("the policy's default allows {}", subject(request))
}

/// What only observation lets pass.
pub(crate) fn let_pass(refusal: &Refusal) -> String {
    format!("observed, and let pass: {}", refusal.reason.text)
}

pub(crate) fn lifted(rule: &Rule, grant: &Grant, request: &Request) -> String {
    format!(
        "rule `{}` is lifted for {} by grant `{}` of {} until {}",
        rule.id,
        subject(request),
        grant.id,
        grant.by,
        grant.expires_at
    )
}

pub(crate) fn refused(rule: &Rule, fit: Fit, request: &Request) -> String {
    let subject = subject(request);
    let id = &rule.id;
    match (fit, rule.effect, &request.moment) {
        (Fit::Ambiguous, _, Moment::Http(http)) => format!(
            "{subject} is refused since rule `{id}` looks at paths and this one can be read in more than one way: {}",
            http.path.ambiguity().unwrap_or_default()
        ),
        (Fit::Unread, ..) => {
            format!(
                "{subject} is refused since rule `{id}` needs to look at requests, and this stream cannot be read"
            )
        }
        (_, Effect::Ask, _) => format!("rule `{id}` lets {subject} pass only when a person agrees"),
        _ => format!("rule `{id}` denies {subject}"),
    }
}

/// What no rule names; `near` is a rule that allows something on that host.
/// `layer` is whose rules were looked at, where there are several.
pub(crate) fn unnamed(request: &Request, near: Option<(&Rule, Fit)>, layer: Option<Layer>) -> String {
    let subject = subject(request);
    let no_rule = match layer {
        Some(layer) => format!("no rule of layer `{layer}` allows"),
        None => "no rule allows".to_owned(),
    };
    if let Host::Address(address) = request.destination.host
        && let Some(class) = classify(address)
    {
        return format!(
            "{no_rule} {subject}: `{address}` is a {class} address, which a rule must name with `private: true`"
        );
    }
    let Some((rule, Fit::Miss(miss))) = near else {
        return format!("{no_rule} {subject}");
    };
    let id = &rule.id;
    let what = match miss {
        Miss::Host | Miss::Address(_) => return format!("{no_rule} {subject}"),
        Miss::Port => format!("on port {} only", ports(&rule.ports)),
        Miss::Who => "for other runs only".to_owned(),
        Miss::Time => format!("only during {}", window(rule)),
        Miss::Protocol => "as HTTP or TLS only, not as an opaque stream".to_owned(),
        Miss::Method => format!("for {} only", rule.methods.join(", ")),
        Miss::Path => format!(
            "for {} only",
            some(rule.paths.iter().map(|path| path.as_str().to_owned()).collect())
        ),
        Miss::AmbiguousPath => {
            let reason = match &request.moment {
                Moment::Http(http) => http.path.ambiguity().unwrap_or_default(),
                _ => "",
            };
            return format!(
                "{no_rule} {subject}: rule `{id}` looks at paths, and this one can be read in more than one way: {reason}"
            );
        }
    };
    format!("{no_rule} {subject}; rule `{id}` allows this host {what}")
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

/// What was asked, with its query, for those who ask about it themselves.
pub(crate) fn whole(request: &Request) -> String {
    let subject = subject(request);
    let subject = subject.trim_matches('`').to_owned();
    match &request.moment {
        Moment::Http(http) => match &http.query {
            Some(query) => format!("{subject}?{}", shown(query)),
            None => subject,
        },
        _ => subject.replace('`', ""),
    }
}

/// What is odd about a request, whatever the rules say.
pub(crate) fn notes(request: &Request) -> Vec<String> {
    let mut notes = Vec::new();
    if let Host::Address(address) = request.destination.host
        && let Some(class) = classify(address)
    {
        notes.push(format!(
            "`{address}` is a {class} address: only a rule that names it with `private: true` allows it"
        ));
    }
    if let Moment::Http(http) = &request.moment {
        if let Some(reason) = http.path.ambiguity() {
            notes.push(format!("the path can be read in more than one way: {reason}"));
        }
        if !http.tls {
            notes.push("plain http never gets a credential".to_owned());
        }
    }
    notes
}

/// Why a rule fits or does not.
pub(crate) fn fit(rule: &Rule, fit: Fit, request: &Request, who: &Who) -> String {
    match fit {
        Fit::Full => "it matches".to_owned(),
        Fit::Later if rule.is_fine() => "it looks at the request, which is not there yet".to_owned(),
        Fit::Later => "it depends on the protocol, which is not known yet".to_owned(),
        Fit::Ambiguous => {
            "it looks at paths, and refuses one that can be read in more than one way".to_owned()
        }
        Fit::Unread => "it looks at requests, and refuses a stream that cannot be read".to_owned(),
        Fit::Miss(miss) => missed(rule, miss, request, who),
    }
}

fn missed(rule: &Rule, miss: Miss, request: &Request, who: &Who) -> String {
    match miss {
        Miss::Host => format!(
            "it names {}",
            some(rule.hosts.iter().map(ToString::to_string).collect())
        ),
        Miss::Port => format!("port {} is not {}", request.destination.port, ports(&rule.ports)),
        Miss::Who => match rule.unmet_fact(who) {
            Some((fact, values)) => format!(
                "{fact} is `{}`, not {}",
                shown(who.fact(fact)),
                some(values.to_vec())
            ),
            None => "it is for other runs".to_owned(),
        },
        Miss::Protocol => match rule.protocol {
            Some(Protocol::Tcp) => "it is about opaque streams".to_owned(),
            Some(Protocol::Tls) => "it is about TLS passed through unread".to_owned(),
            _ => "it is about HTTP".to_owned(),
        },
        Miss::Method => format!("the method is not {}", rule.methods.join(", ")),
        Miss::Path => format!(
            "the path is not {}",
            some(rule.paths.iter().map(|path| path.as_str().to_owned()).collect())
        ),
        Miss::AmbiguousPath => {
            "it looks at paths, and allows none that can be read in more than one way".to_owned()
        }
        Miss::Time => format!("it holds only during {}", window(rule)),
        Miss::Address(class) => format!("it does not name this {class} address with `private: true`"),
    }
}

/// The first few of a list.
fn some(texts: Vec<String>) -> String {
    const SHOWN: usize = 5;
    let listed: Vec<String> = texts.iter().take(SHOWN).map(|text| format!("`{text}`")).collect();
    match texts.len().checked_sub(SHOWN) {
        None | Some(0) => listed.join(", "),
        Some(more) => format!("{} and {more} more", listed.join(", ")),
    }
}
