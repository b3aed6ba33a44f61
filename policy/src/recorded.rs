//! Lines of the network log, reduced to what can be decided again.
use crate::git_command::git_command;
use crate::request_text::written;
use crate::{CanonicalPath, Destination, Host, Moment, PostgresRequest, Request, SshRequest, Who};
use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What stands at the end of a path that the record has the beginning of.
const CUT: char = '…';

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Let through.
    Allowed,
    /// Let through, though it would have been refused: the refusal is in `mode: observe`.
    Observed,
    /// A person must say yes.
    Asked,
    /// Refused.
    Denied,
}

impl Outcome {
    /// As it is written in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Observed => "observed",
            Self::Asked => "asked",
            Self::Denied => "denied",
        }
    }
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'a> {
    /// Whose a session is from here on.
    Session {
        /// Its id.
        session: Cow<'a, str>,
        /// All that was vouched for.
        who: Box<Who>,
    },
    /// Something that a policy decided.
    Request(Box<Recorded<'a>>),
    /// A record of something else: a wish for access, or what was malformed before any rule could look at it.
    Other,
}

/// A recorded request. Query, header fields, pushed refs and resolved addresses are not recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded<'a> {
    /// Decision id.
    pub id: Cow<'a, str>,
    /// When it was decided.
    pub at: jiff::Timestamp,
    /// Session (run) id; empty where nobody was known.
    pub session: Cow<'a, str>,
    /// Who launched it.
    pub user: Cow<'a, str>,
    /// Where to.
    pub destination: Destination,
    /// What is known of what was asked.
    pub shape: Shape<'a>,
    /// What the policy of that time said.
    pub outcome: Outcome,
    /// Whether it was stopped after the policy's yes, by a bound or by the address that the name led to.
    pub stopped: bool,
    /// The rule that decided.
    pub rule: Cow<'a, str>,
    /// The sentence that explained it.
    pub reason: Cow<'a, str>,
    /// How many grants it rested on.
    pub grants: usize,
    /// Names of the credentials that were put in.
    pub credentials: Vec<Cow<'a, str>>,
}

/// What is known of what was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape<'a> {
    /// A connection that was refused, or left, before anything was asked on it.
    Connect,
    /// A stream that was passed unread, or refused since it could not be read.
    Stream,
    /// TLS, passed through unread.
    Tls,
    /// An HTTP request.
    Http {
        /// Method.
        method: Cow<'a, str>,
        /// Path; absent where the record has only its beginning.
        path: Option<CanonicalPath>,
        /// Whether the machine spoke TLS; records of earlier versions do not tell.
        tls: Option<bool>,
    },
    /// A log-in to PostgreSQL.
    Postgres(PostgresRequest),
    /// A command over ssh.
    Ssh(SshRequest),
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordFault(String);

/// Borrows where the text has no escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Allowed,
    Denied,
    Asked,
    Malformed,
    UpstreamFailed,
    Granted,
    Observed,
}

#[derive(Debug, Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    at: jiff::Timestamp,
    #[serde(borrow)]
    session: Text<'a>,
    #[serde(borrow)]
    user: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    host: Text<'a>,
    port: u16,
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    path: Option<Text<'a>>,
    #[serde(borrow, default)]
    login: Option<Text<'a>>,
    verdict: Verdict,
    #[serde(borrow)]
    rule: Text<'a>,
    #[serde(borrow)]
    reason: Text<'a>,
    refusal: Option<IgnoredAny>,
    #[serde(borrow)]
    policy_hash: Text<'a>,
    #[serde(borrow)]
    credentials_used: Vec<Text<'a>>,
    #[serde(default)]
    tls: Option<bool>,
    #[serde(default)]
    grants: Vec<IgnoredAny>,
    #[serde(default)]
    who: Option<Box<Who>>,
}

impl<'a> Line<'a> {
    /// Reads one line: the JSON of a record as it is stored.
    pub fn read(text: &'a str) -> Result<Self, RecordFault> {
        let raw: Raw<'a> = serde_json::from_str(text).map_err(|error| RecordFault(error.to_string()))?;
        if raw.kind.0 == "session" {
            return Ok(match raw.who {
                Some(who) => Self::Session {
                    session: raw.session.0,
                    who,
                },
                None => Self::Other,
            });
        }
        raw.request()
    }
}

impl<'a> Raw<'a> {
    fn request(self) -> Result<Line<'a>, RecordFault> {
        let undecided = matches!(self.verdict, Verdict::Malformed | Verdict::Granted);
        let Some(shape) = self
            .shape()?
            .filter(|_| !undecided && !self.policy_hash.0.is_empty())
        else {
            return Ok(Line::Other);
        };
        let host = Host::parse(&self.host.0).map_err(|fault| RecordFault(fault.to_string()))?;
        let (outcome, stopped) = self.outcome();
        Ok(Line::Request(Box::new(Recorded {
            destination: Destination {
                host,
                port: self.port,
            },
            shape,
            outcome,
            stopped,
            id: self.id.0,
            at: self.at,
            session: self.session.0,
            user: self.user.0,
            rule: self.rule.0,
            reason: self.reason.0,
            grants: self.grants.len(),
            credentials: self.credentials_used.into_iter().map(|name| name.0).collect(),
        })))
    }

    fn shape(&self) -> Result<Option<Shape<'a>>, RecordFault> {
        Ok(Some(match (&*self.kind.0, &self.method, &self.path) {
            ("connect", ..) => Shape::Connect,
            ("tcp", ..) => Shape::Stream,
            ("tls", ..) => Shape::Tls,
            ("http" | "websocket", Some(method), Some(path)) => Shape::Http {
                method: method.0.clone(),
                path: whole_path(&path.0)?,
                tls: self.tls,
            },
            ("postgres", Some(method), Some(path)) if method.0 == "LOGIN" => {
                return Ok(log_in(&path.0).map(Shape::Postgres));
            }
            ("ssh", None, _) => Shape::Connect,
            ("ssh", Some(method), Some(path)) => {
                let login = self.login.as_ref();
                return Ok(login
                    .and_then(|user| command(&user.0, &method.0, &path.0))
                    .map(Shape::Ssh));
            }
            _ => return Ok(None),
        }))
    }

    /// What the policy said, and whether something else said no after its yes.
    fn outcome(&self) -> (Outcome, bool) {
        match self.verdict {
            Verdict::Observed => (Outcome::Observed, false),
            Verdict::Asked => (Outcome::Asked, false),
            Verdict::Denied if self.refusal.is_none() && !self.rule.0.is_empty() => (Outcome::Allowed, true),
            Verdict::Denied if self.is_bound() => (Outcome::Allowed, true),
            Verdict::Denied => (Outcome::Denied, false),
            _ => (Outcome::Allowed, false),
        }
    }

    /// Whether more was asked for than the limits of a rule let pass: they begin their sentence like this, and no denial does.
    fn is_bound(&self) -> bool {
        let rest = self.reason.0.strip_prefix("rule `");
        rest.and_then(|rest| rest.strip_prefix(&*self.rule.0))
            .is_some_and(|rest| rest.starts_with("` lets "))
    }
}

/// `/DATABASE/ROLE`, percent-encoded.
fn log_in(path: &str) -> Option<PostgresRequest> {
    let plain = |text: &str| percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned);
    let (database, user) = path.strip_prefix('/')?.split_once('/')?;
    Some(PostgresRequest {
        database: plain(database)?,
        user: plain(user)?,
    })
}

/// A command of this user. None for what no policy decides, such as a port that was to be forwarded, and where the record has only
/// the beginning of a command of git's.
fn command(user: &str, method: &str, text: &str) -> Option<SshRequest> {
    let git = match method {
        "exec" if text.starts_with("git-") => match git_command(text.as_bytes()) {
            None if text.ends_with(CUT) => return None,
            git => git,
        },
        "exec" | "shell" | "subsystem" => None,
        _ => return None,
    };
    Some(SshRequest {
        user: user.to_owned(),
        git,
    })
}

/// Canonical paths are ASCII: the mark at the end of a cut one is not.
fn whole_path(text: &str) -> Result<Option<CanonicalPath>, RecordFault> {
    if !text.is_ascii() {
        return Ok(None);
    }
    CanonicalPath::parse(text)
        .map(Some)
        .map_err(|fault| RecordFault(fault.to_string()))
}

impl Recorded<'_> {
    /// What was asked for, in one line.
    pub fn subject(&self) -> String {
        use crate::host::shown;
        let place = &self.destination;
        let asked = |moment| {
            written(&Request {
                destination: place.clone(),
                moment,
            })
        };
        match &self.shape {
            Shape::Connect => format!("connect {place}"),
            Shape::Stream => format!("stream {place}"),
            Shape::Tls => format!("tls {place}"),
            Shape::Postgres(login) => asked(Moment::Postgres(login.clone())),
            Shape::Ssh(ssh) => asked(Moment::Ssh(ssh.clone())),
            Shape::Http { method, path, tls } => {
                let (scheme, usual) = match tls {
                    Some(false) => ("http://", 80),
                    Some(true) => ("https://", 443),
                    None => ("", 443),
                };
                let place = match place.port == usual {
                    true => place.host.in_url(),
                    false => place.to_string(),
                };
                let path = path.as_ref().map_or("/…", CanonicalPath::as_str);
                format!("{} {scheme}{place}{}", shown(method), shown(path))
            }
        }
    }
}

#[cfg(test)]
mod tests;
