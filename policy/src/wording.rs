//! The sentences in which decisions are told.
mod misses;

use crate::address::classify;
use crate::document::Effect;
use crate::host::shown;
use crate::request_text;
use crate::rule::{Fit, Miss, Rule};
use crate::{Destination, GitAccess, Grant, Host, Layer, Moment, Refusal, Request, Who};
pub(crate) use misses::ports;

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
    match (fit, rule.effect) {
        (Fit::Ambiguous(unclear), _) => format!(
            "{subject} is refused since rule `{id}` looks at {} and this one can be read in more than one way: {}",
            misses::looked_at(rule, unclear),
            misses::doubt(unclear, request)
        ),
        (Fit::Unread, _) => {
            format!(
                "{subject} is refused since rule `{id}` needs to look at requests, and this stream cannot be read"
            )
        }
        (_, Effect::Ask) => format!("rule `{id}` lets {subject} pass only when a person agrees"),
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
    if let Miss::Unclear(unclear) = miss {
        return format!(
            "{no_rule} {subject}: rule `{id}` looks at {}, and this one can be read in more than one way: {}",
            misses::looked_at(rule, unclear),
            misses::doubt(unclear, request)
        );
    }
    match misses::only(rule, miss) {
        Some(what) => format!("{no_rule} {subject}; rule `{id}` allows this host {what}"),
        None => format!("{no_rule} {subject}"),
    }
}

/// What was asked, with its query, for those who ask about it themselves: as [`Request::parse`] reads it.
pub(crate) fn whole(request: &Request) -> String {
    request_text::written(request)
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
        Fit::Later if request.moment != Moment::Connect => {
            "it looks at the refs of the push, which have not been read yet".to_owned()
        }
        Fit::Later if rule.is_fine() => "it looks at the request, which is not there yet".to_owned(),
        Fit::Later => "it depends on the protocol, which is not known yet".to_owned(),
        Fit::Ambiguous(unclear) => format!(
            "it looks at {}, and refuses one that can be read in more than one way",
            misses::looked_at(rule, unclear)
        ),
        Fit::Unread => "it looks at requests, and refuses a stream that cannot be read".to_owned(),
        Fit::Miss(miss) => misses::missed(rule, miss, request, who),
    }
}
