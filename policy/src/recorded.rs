//! Lines of the network log, reduced to what can be decided again.
use crate::{CanonicalPath, Destination, Host, Who};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

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
        match &self.shape {
            Shape::Connect => format!("connect {place}"),
            Shape::Stream => format!("stream {place}"),
            Shape::Tls => format!("tls {place}"),
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
mod tests {
    use super::*;

    const HTTP: &str = r#"{"sequence":7,"id":"d-7","at":"2026-05-01T10:00:00.5Z","session":"run-1","user":"ada","kind":"http","host":"api.test","port":443,"method":"GET","path":"/a","verdict":"allowed","rule":"read","reason":"rule `read` allows it","refusal":null,"policy_hash":"ff","status":200,"bytes_out":0,"bytes_in":1,"duration_ms":2,"credentials_used":["token"],"credentials_redacted":[],"ending":"complete","tls":true,"grants":["g-1"],"chain":""}"#;

    fn request(line: &str) -> Recorded<'_> {
        match Line::read(line) {
            Ok(Line::Request(recorded)) => *recorded,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_read_without_copying_its_texts() {
        let recorded = request(HTTP);
        assert_eq!(recorded.subject(), "GET https://api.test/a");
        assert_eq!(
            (recorded.grants, recorded.outcome, recorded.stopped),
            (1, Outcome::Allowed, false)
        );
        assert!(matches!(recorded.rule, Cow::Borrowed("read")));
        assert!(matches!(recorded.credentials[..], [Cow::Borrowed("token")]));
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let old = HTTP.replace(r#""tls":true,"grants":["g-1"],"#, "");
        let recorded = request(&old);
        assert!(matches!(recorded.shape, Shape::Http { tls: None, .. }));
        assert_eq!(
            (recorded.grants, recorded.subject()),
            (0, "GET api.test/a".to_owned())
        );
    }

    #[test]
    fn whose_a_session_is_comes_from_its_own_record() {
        let line = HTTP
            .replace(r#""kind":"http""#, r#""kind":"session""#)
            .replace(r#""chain""#, r#""who":{"run":"run-1","team":"web"},"chain""#);
        let Ok(Line::Session { session, who }) = Line::read(&line) else {
            panic!("{:?}", Line::read(&line))
        };
        assert_eq!((&*session, who.team.as_str()), ("run-1", "web"));
    }

    #[test]
    fn what_stopped_a_request_after_the_policys_yes_is_no_denial_of_the_policy() {
        let denied = HTTP.replace(r#""allowed""#, r#""denied""#);
        assert_eq!(
            (request(&denied).outcome, request(&denied).stopped),
            (Outcome::Allowed, true)
        );
        let refused = denied.replace(
            r#""refusal":null"#,
            r#""refusal":{"reason":{"rule":"read","text":""},"remedy":{"kind":"none"},"hint":null}"#,
        );
        assert_eq!(
            (request(&refused).outcome, request(&refused).stopped),
            (Outcome::Denied, false)
        );
        let bound = refused.replace(
            "rule `read` allows it",
            "rule `read` lets 2 requests in 1 s pass; try again in 1 s",
        );
        assert_eq!(
            (request(&bound).outcome, request(&bound).stopped),
            (Outcome::Allowed, true)
        );
        let failed = HTTP.replace(r#""allowed""#, r#""upstream-failed""#);
        assert_eq!(request(&failed).outcome, Outcome::Allowed);
        let unasked = denied.replace(r#""rule":"read""#, r#""rule":"""#);
        assert_eq!(request(&unasked).outcome, Outcome::Denied);
    }

    #[test]
    fn what_no_policy_decided_is_something_else_and_what_is_no_record_is_told() {
        for (from, to) in [
            (r#""policy_hash":"ff""#, r#""policy_hash":"""#),
            (r#""verdict":"allowed""#, r#""verdict":"malformed""#),
            (r#""kind":"http""#, r#""kind":"access""#),
            (r#""path":"/a""#, r#""path":null"#),
        ] {
            assert_eq!(Line::read(&HTTP.replace(from, to)), Ok(Line::Other), "{to}");
        }
        for text in [
            "",
            "{}",
            "no record",
            &HTTP[..HTTP.len() - 5],
            &HTTP.replace("api.test", "a b"),
        ] {
            assert!(Line::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_that_was_cut_is_not_taken_for_a_whole_one() {
        let cut = HTTP.replace("\"/a\"", "\"/aaaa…\"");
        assert!(matches!(request(&cut).shape, Shape::Http { path: None, .. }));
        assert_eq!(request(&cut).subject(), "GET https://api.test/…");
    }
}
