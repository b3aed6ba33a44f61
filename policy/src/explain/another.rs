//! The request that a rule would have taken: one thing of it altered at a time.
use crate::fit::Unclear;
use crate::rule::{Miss, Rule};
use crate::{CanonicalPath, HttpRequest, Moment, PostgresRequest, Protocol, RefUpdate, Request, SshRequest};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Alters the one thing of the request that keeps it out of the rule, and says what.
pub(super) fn another_request(rule: &Rule, miss: Miss, request: &mut Request) -> Option<String> {
    if miss == Miss::Port {
        let (port, _) = rule.ports.first()?;
        request.destination.port = *port;
        return Some(format!("on port {}", crate::wording::ports(&rule.ports)));
    }
    match &mut request.moment {
        Moment::Http(http) => another_head(rule, miss, http).or_else(|| {
            let refs = http.pushed.as_mut()?;
            another_push(rule, miss, refs)
        }),
        Moment::Ssh(ssh) => match miss {
            Miss::User => another_user(rule, &mut ssh.user),
            _ => another_push(rule, miss, pushed_over_ssh(ssh)?),
        },
        Moment::Postgres(PostgresRequest { database, user }) => match miss {
            Miss::User => another_user(rule, user),
            Miss::Database => {
                let name = rule.databases.first()?;
                *database = example(name);
                Some(format!("for database `{name}`"))
            }
            _ => None,
        },
        Moment::Connect | Moment::Opaque => None,
    }
}

fn another_head(rule: &Rule, miss: Miss, http: &mut HttpRequest) -> Option<String> {
    match miss {
        Miss::Method => {
            http.method.clone_from(rule.methods.first()?);
            Some(format!("with {}", rule.methods.join(" or ")))
        }
        Miss::Path | Miss::Unclear(Unclear::Path) => {
            let pattern = rule.paths.first()?;
            http.path = CanonicalPath::parse(&pattern.example()).ok()?;
            Some(format!("on path `{}`", pattern.as_str()))
        }
        Miss::Header(number) | Miss::Unclear(Unclear::Header(number)) => {
            let condition = rule.headers.get(number)?;
            let value = condition.values.first()?;
            http.headers.retain(|(name, _)| *name != condition.name);
            http.headers.push((condition.name.clone(), example(value)));
            Some(format!("with header `{}: {value}`", condition.name))
        }
        Miss::Query(_) | Miss::Unclear(Unclear::Query(_)) => {
            let (query, told) = another_query(rule)?;
            http.query = Some(query);
            Some(format!("with query `{told}`"))
        }
        Miss::Protocol if rule.protocol == Some(Protocol::Tls) && !http.tls => {
            http.tls = true;
            Some("over TLS".to_owned())
        }
        _ => None,
    }
}

/// All parameters that the rule wants, as they are sent and as they are told.
fn another_query(rule: &Rule) -> Option<(String, String)> {
    let mut query: Vec<String> = Vec::new();
    let mut told: Vec<String> = Vec::new();
    for condition in &rule.query {
        let value = condition.values.first()?;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        query.push(format!(
            "{}={}",
            encoded(&condition.name),
            encoded(&example(value))
        ));
        told.push(format!("{}={value}", condition.name));
    }
    Some((query.join("&"), told.join("&")))
}

fn pushed_over_ssh(ssh: &mut SshRequest) -> Option<&mut Vec<RefUpdate>> {
    ssh.git.as_mut()?.pushed.as_mut()
}

fn another_push(rule: &Rule, miss: Miss, updates: &mut Vec<RefUpdate>) -> Option<String> {
    match miss {
        Miss::Ref => {
            let pattern = rule.git.refs.first()?;
            let name = pattern.example().trim_start_matches('/').to_owned();
            *updates = vec![RefUpdate { name, forced: false }];
            Some(format!(
                "with a push to `{}`",
                pattern.as_str().trim_start_matches('/')
            ))
        }
        Miss::Force => {
            for update in updates {
                update.forced = false;
            }
            Some("without force".to_owned())
        }
        _ => None,
    }
}

fn another_user(rule: &Rule, user: &mut String) -> Option<String> {
    let name = rule.users.first()?;
    *user = example(name);
    Some(format!("as user `{name}`"))
}

/// A text that a glob fits.
fn example(glob: &str) -> String {
    glob.replace('*', "x")
}
