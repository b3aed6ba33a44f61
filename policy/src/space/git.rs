//! The requests that make up git, over smart HTTP and over ssh, each a piece of its own.
use super::axis::{Setting, Slot, Split, keep};
use super::globs::TooMany;
use crate::document::Effect;
use crate::git::{self, GitView};
use crate::rule::Rule;
use crate::{CanonicalPath, GitAccess, GitRequest, HttpRequest, Moment, Protocol};

/// Stands for a query of which no rule names a parameter.
const OTHER_QUERY: &str = "?";
const ASKS_TO_READ: &str = "service=git-upload-pack";
const ASKS_TO_WRITE: &str = "service=git-receive-pack";

/// Method, path and query of one request of each kind; the first is none of git's. A method that is not the kind's own stands
/// for all others.
const OVER_HTTP: &[(&str, &str, &str)] = &[
    ("GET", "/", ""),
    ("GET", "/x/info/refs", ASKS_TO_READ),
    ("POST", "/x/git-upload-pack", ""),
    ("GET", "/x/info/refs", ASKS_TO_WRITE),
    ("POST", "/x/git-receive-pack", ""),
    ("HEAD", "/x/info/refs", ASKS_TO_READ),
    ("HEAD", "/x/info/refs", ASKS_TO_WRITE),
    ("GET", "/x/info/refs", OTHER_QUERY),
    ("GET", "/x/git-upload-pack", OTHER_QUERY),
    ("GET", "/x/git-receive-pack", OTHER_QUERY),
    ("GET", "/x//git-upload-pack", ""),
];

/// Words for kinds over HTTP, by place in the list above.
const HTTP_WORDS: &[(&str, &[usize])] = &[
    ("requests that are not git's", &[0]),
    ("git read or write", &[1, 2, 3, 4]),
    ("git read", &[1, 2]),
    ("git write", &[3, 4]),
    ("asking before a git read", &[1]),
    ("the git read itself", &[2]),
    ("asking before a git write", &[3]),
    ("the git write itself", &[4]),
    ("unclear git requests", &[5, 6, 7, 8, 9, 10]),
    ("unclear asking before a git read", &[5]),
    ("unclear asking before a git write", &[6]),
    ("unclear asking of git", &[7]),
    ("unclear git read", &[8]),
    ("unclear git write", &[9]),
    ("ambiguous paths that may be git's", &[10]),
];

/// Repository and access of one command of each kind; the first is none of git's, the last two name no repository clearly.
const OVER_SSH: &[Option<(&str, GitAccess)>] = &[
    None,
    Some(("x", GitAccess::Read)),
    Some(("x", GitAccess::Write)),
    Some(("x/../x", GitAccess::Read)),
    Some(("x/../x", GitAccess::Write)),
];

const SSH_WORDS: &[(&str, &[usize])] = &[
    ("requests that are not git's", &[0]),
    ("git read or write", &[1, 2]),
    ("git read", &[1]),
    ("git write", &[2]),
    ("unclear git requests", &[3, 4]),
    ("unclear git read", &[3]),
    ("unclear git write", &[4]),
];

/// Whether one of the rules looks at git.
pub(super) fn is_looked_at(rules: &[&Rule]) -> bool {
    rules.iter().any(|rule| rule.protocol == Some(Protocol::Git))
}

/// Whether a query asks for refs as git does.
pub(super) fn asks(query: &str) -> bool {
    [ASKS_TO_READ, ASKS_TO_WRITE].contains(&query)
}

/// What git makes of a request, where it is git's.
pub(crate) fn view(moment: &Moment) -> Option<GitView<'_>> {
    match moment {
        Moment::Http(http) => git::over_http(http),
        Moment::Ssh(ssh) => ssh.git.as_ref().map(git::over_ssh),
        _ => None,
    }
}

/// The kinds of requests, as far as the protocol at hand has them.
pub(super) fn kinds(moment: &Moment, rules: &[&Rule]) -> Result<Split, TooMany> {
    let (moments, words) = match moment {
        Moment::Http(http) => (over_http(http, rules)?, HTTP_WORDS),
        Moment::Ssh(ssh) => {
            let moment = |kind: &Option<(&str, GitAccess)>| {
                let mut ssh = ssh.clone();
                ssh.git = kind.map(|(repository, access)| GitRequest {
                    repository: repository.to_owned(),
                    access,
                    pushed: None,
                });
                Moment::Ssh(ssh)
            };
            (OVER_SSH.iter().map(moment).collect(), SSH_WORDS)
        }
        _ => return Err(TooMany),
    };
    let slots = moments.into_iter().enumerate().map(|(flavour, moment)| Slot {
        keeps: keep(rules, |rule| may_match(rule, &moment)),
        setting: Setting::Kind(moment),
        flavour,
    });
    let names = words
        .iter()
        .map(|(name, kinds)| ((*name).to_owned(), kinds.to_vec()));
    Ok(Split::named(slots.collect(), names.collect()))
}

fn over_http(http: &HttpRequest, rules: &[&Rule]) -> Result<Vec<Moment>, TooMany> {
    let is_free = |name: &String| {
        rules
            .iter()
            .all(|rule| rule.query.iter().all(|own| own.name != *name))
    };
    let count = rules.iter().map(|rule| rule.query.len()).sum();
    let free = (0..=count)
        .map(|n| format!("x{n}"))
        .find(is_free)
        .ok_or(TooMany)?;
    let moment = |(method, path, query): &(&str, &str, &str)| {
        let query = match *query {
            "" => None,
            OTHER_QUERY => Some(format!("{free}=1")),
            query => Some(query.to_owned()),
        };
        let path = CanonicalPath::parse(path).map_err(|_| TooMany)?;
        Ok(Moment::Http(HttpRequest::new(*method, path, query, http.tls)))
    };
    OVER_HTTP.iter().map(moment).collect()
}

/// Whether a rule may match requests of this kind. One for git may yet see a command that is not git's.
fn may_match(rule: &Rule, moment: &Moment) -> bool {
    let (Some(Protocol::Git), Some(view)) = (rule.protocol, view(moment)) else {
        return true;
    };
    let other_access = matches!((rule.git.access, view.access), (Some(own), Some(access)) if own != access);
    !other_access && (view.doubt.is_none() || rule.effect != Effect::Allow)
}

/// Whether a request is of the same kind with another method.
pub(super) fn stays_with(moment: &Moment, method: &str) -> bool {
    let Moment::Http(http) = moment else { return true };
    let mut other = http.clone();
    method.clone_into(&mut other.method);
    git::over_http(&other) == git::over_http(http)
}

/// Whether a path is git's, or may be.
pub(super) fn is_path(path: &str) -> bool {
    CanonicalPath::parse(path)
        .is_ok_and(|path| git::over_http(&HttpRequest::new("GET", path, None, true)).is_some())
}
