//! What a decision is about: who wants to go where, and what is known of it so far.
use crate::{CanonicalPath, Host};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What passes between agent and upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP, looked at request by request.
    Http,
    /// TLS passed through unread; the name in its SNI must be the one dialled.
    Tls,
    /// An opaque stream.
    Tcp,
    /// Git, over smart HTTP or ssh: repository, access, refs.
    Git,
    /// SSH, ended at the gateway.
    Ssh,
    /// PostgreSQL, logged in at the gateway.
    Postgres,
}

impl Protocol {
    /// All, in the order in which they are told.
    pub const ALL: &[Self] = &[
        Self::Http,
        Self::Git,
        Self::Ssh,
        Self::Postgres,
        Self::Tls,
        Self::Tcp,
    ];

    /// As it is written in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Git => "git",
            Self::Ssh => "ssh",
            Self::Postgres => "postgres",
        }
    }

    /// The port that a rule which allows means when it names none.
    pub(crate) fn port(self) -> Option<u16> {
        match self {
            Self::Http | Self::Git | Self::Tls => Some(443),
            Self::Ssh => Some(22),
            Self::Postgres => Some(5432),
            Self::Tcp => None,
        }
    }
}

/// Host and port as the client named them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Name or address dialled.
    pub host: Host,
    /// TCP port.
    pub port: u16,
}

impl Destination {
    /// Reads `host:port`, as it stands in CONNECT (RFC 9110 section 9.3.6); IPv6 in brackets. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shown = crate::host::shown(text);
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| format!("`{shown}` has no port"))?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(format!("`{shown}` has an IPv6 address without brackets"));
        }
        Ok(Self {
            host: Host::parse(host).map_err(|fault| fault.to_string())?,
            port: parse_port(port)?,
        })
    }
}

/// Decimal digits, 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse::<u16>().ok())
        .flatten()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("`{}` is not a port", crate::host::shown(text)))
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host.in_url(), self.port)
    }
}

/// One HTTP request, reduced to what rules can look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method, as sent (methods are case-sensitive, RFC 9110 section 9.1).
    pub method: String,
    /// Path in the form in which it will be sent.
    pub path: CanonicalPath,
    /// Query without `?`, as sent.
    pub query: Option<String>,
    /// Whether the agent speaks TLS on this connection; plain http never gets a credential by default.
    pub tls: bool,
    /// Fields by lower-case name, values read as ISO-8859-1 (RFC 9110 section 5.5), in the order in which they came. Without
    /// those that carry credentials: no condition looks at them.
    pub headers: Vec<(String, String)>,
    /// The refs that a push changes, once its body's beginning was read.
    pub pushed: Option<Vec<RefUpdate>>,
}

impl HttpRequest {
    /// A request without header fields.
    pub fn new(method: impl Into<String>, path: CanonicalPath, query: Option<String>, tls: bool) -> Self {
        Self {
            method: method.into(),
            path,
            query,
            tls,
            headers: Vec::new(),
            pushed: None,
        }
    }
}

/// One command of a push (gitprotocol-pack, "Reference Update Request").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefUpdate {
    /// Full name, `refs/heads/main`.
    pub name: String,
    /// Whether it deletes the ref, or may set it to what does not descend from it.
    pub forced: bool,
}

/// What a git client wants of which repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitRequest {
    /// Path without slashes at its ends and without `.git`.
    pub repository: String,
    /// To fetch or to push.
    pub access: GitAccess,
    /// The refs that a push changes, where they are known.
    pub pushed: Option<Vec<RefUpdate>>,
}

/// To fetch (`git-upload-pack`) or to push (`git-receive-pack`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitAccess {
    /// Fetch and clone.
    Read,
    /// Push.
    Write,
}

/// An SSH connection whose user and command are known (RFC 4254 section 6.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshRequest {
    /// User name that the client logs in with.
    pub user: String,
    /// Where the command is git's.
    pub git: Option<GitRequest>,
}

/// A PostgreSQL log-in (protocol's start-up message).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresRequest {
    /// Database asked for.
    pub database: String,
    /// Role asked for.
    pub user: String,
}

/// How much is known when a decision is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// Name and port only.
    Connect,
    /// The first bytes are not HTTP nor TLS that may be intercepted: an opaque stream.
    Opaque,
    /// A whole HTTP request head.
    Http(HttpRequest),
    /// SSH, logged in and with a command.
    Ssh(SshRequest),
    /// A PostgreSQL log-in.
    Postgres(PostgresRequest),
}

/// A question to the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub destination: Destination,
    /// What is known.
    pub moment: Moment,
}

/// Facts that the supervisor vouches for; never what the agent says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Who {
    /// Run id.
    pub run: String,
    /// Person who launched the run.
    pub user: String,
    /// Team of that person.
    pub team: String,
    /// Repository worked on, as `owner/name`.
    pub repository: String,
    /// Environment's name.
    pub environment: String,
    /// Kind of machine (`namespace`, `qemu`, ...).
    pub machine: String,
    /// Run that started this one, if any.
    pub parent_run: String,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
}

impl Who {
    /// The value of a fact, by its name in a policy (`team`, `labels.NAME`); empty where it is not known.
    pub fn fact(&self, name: &str) -> &str {
        match name {
            "run" => &self.run,
            "user" => &self.user,
            "team" => &self.team,
            "repository" => &self.repository,
            "environment" => &self.environment,
            "machine" => &self.machine,
            "parent_run" => &self.parent_run,
            _ => name
                .strip_prefix("labels.")
                .and_then(|label| self.labels.get(label))
                .map_or("", String::as_str),
        }
    }

    /// The values of all facts and labels.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut String> {
        [
            &mut self.run,
            &mut self.user,
            &mut self.team,
            &mut self.repository,
            &mut self.environment,
            &mut self.machine,
            &mut self.parent_run,
        ]
        .into_iter()
        .chain(self.labels.values_mut())
    }

    /// Sets a fact by its name in a policy; `false` if there is no such fact.
    pub fn set(&mut self, name: &str, value: String) -> bool {
        let field = match name {
            "run" => &mut self.run,
            "user" => &mut self.user,
            "team" => &mut self.team,
            "repository" => &mut self.repository,
            "environment" => &mut self.environment,
            "machine" => &mut self.machine,
            "parent_run" => &mut self.parent_run,
            _ => match name.strip_prefix("labels.") {
                Some(label) if !label.is_empty() => self.labels.entry(label.to_owned()).or_default(),
                _ => return false,
            },
        };
        *field = value;
        true
    }
}
