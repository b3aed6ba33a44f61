//! Credentials by name: where they come from, where they may go. Never a value.
use crate::document::TermsPart;
use crate::host_pattern::HostPattern;
use crate::path_pattern::{PathPattern, Slashes};
use crate::{CanonicalPath, Destination};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A binding of a secret to hosts and places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Name in the policy.
    pub name: String,
    /// Where the gateway finds the value.
    pub from: Source,
    /// Host patterns, in the policy's syntax, canonical.
    pub hosts: Vec<String>,
    /// The same, read.
    pub(crate) patterns: Vec<HostPattern>,
    /// Places in a request.
    pub places: Vec<Place>,
    /// Environment variable in which the agent finds the placeholder.
    pub env: Option<String>,
    /// The answers that give values, read; with [`Source::Answer`].
    pub(crate) answers: Option<(HostPattern, PathPattern)>,
    /// How long a fetched value may be used; absent means as its source says.
    pub ttl: Option<jiff::SignedDuration>,
    /// What it is for, in a sentence for people and agents.
    pub purpose: Option<String>,
    /// The user name that belongs to it in log-ins by name and password.
    pub user: Option<String>,
    /// Who lends it, where it must be asked for first.
    pub(crate) terms: Option<TermsPart>,
}

impl Credential {
    /// Whether it may be used only once it was asked for and lent.
    pub fn is_lent(&self) -> bool {
        self.terms.is_some()
    }

    /// Whether this credential may be sent to that host.
    pub fn admits(&self, destination: &Destination) -> bool {
        self.patterns
            .iter()
            .any(|pattern| pattern.matches(&destination.host))
    }

    /// Where its values stand in the answer to what is asked there; nothing where that is no log-in of its own.
    pub fn parts_of_answer(&self, destination: &Destination, path: &CanonicalPath) -> &[AnswerPart] {
        match (&self.from, &self.answers) {
            (Source::Answer { parts, .. }, Some((host, asked)))
                if host.matches(&destination.host) && asked.matches(path) =>
            {
                parts
            }
            _ => &[],
        }
    }
}

/// Where a secret's value is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The gateway's encrypted store, by name.
    Store(String),
    /// A variable of the gateway's environment whose name begins with `SALLYPORT_SECRET_`.
    Env(String),
    /// A file below `secret-files` in the gateway's state directory, by its relative path.
    File(String),
    /// A field of a secret in Vault or OpenBao.
    Vault {
        /// Mount and path, `kv/agents/model`.
        path: String,
        /// Field of the secret.
        field: String,
    },
    /// An installation token of a GitHub App.
    GithubApp {
        /// The app's name in the gateway's configuration.
        app: String,
        /// Repositories that the token is cut down to; `${run.repositories}` stands for the run's own.
        repositories: Vec<String>,
        /// Permissions by name: `read` or `write`.
        permissions: BTreeMap<String, String>,
    },
    /// An access token of OAuth 2.0, by the name of the log-in in the gateway's configuration.
    Oauth(String),
    /// A secret in AWS Secrets Manager.
    AwsSecret {
        /// Name or ARN.
        name: String,
        /// Field of the JSON object that the secret is; without it the whole secret.
        field: Option<String>,
    },
    /// A parameter in AWS Systems Manager, by name or ARN.
    AwsParameter(String),
    /// A log-in's answer that passes here: the agent gets a placeholder of each value in it.
    Answer {
        /// Host that answers, in the policy's syntax.
        host: String,
        /// Path that is asked for, in the policy's syntax.
        path: String,
        /// Where the values stand.
        parts: Vec<AnswerPart>,
    },
}

impl Source {
    /// The answers that give values, read.
    pub(crate) fn answers(&self) -> Option<(HostPattern, PathPattern)> {
        let Self::Answer { host, path, .. } = self else {
            return None;
        };
        Some((
            HostPattern::parse(host).ok()?,
            PathPattern::parse(path, Slashes::Plain).ok()?,
        ))
    }
}

/// Where in an answer a value stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerPart {
    /// A string in a JSON body, by pointer (RFC 6901).
    Json(String),
    /// The whole of a header, by lower-case name.
    Header(String),
    /// A field of a form as body, by name.
    Form(String),
}

/// Where in a request a credential may stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `Authorization: Bearer ...` (also `token ...`).
    Bearer,
    /// `Authorization: Basic ...`, in the user name or the password.
    Basic,
    /// A header, by lower-case name.
    Header(String),
    /// A query parameter, by name.
    Query(String),
    /// A string in a JSON body, by pointer (RFC 6901).
    Json(String),
    /// A field of a form body, by name.
    Form(String),
    /// A whole segment of the path.
    Path,
    /// A string in the JSON of a WebSocket's text messages to the host, by pointer (RFC 6901).
    WebSocket(String),
    /// The private key with which ssh logs in.
    SshKey,
    /// The password of a log-in that is not HTTP: PostgreSQL, ssh.
    Password,
    /// Certificate and key with which TLS names the client.
    ClientCertificate,
    /// The signature of a request by an access key of AWS (Signature Version 4), in its head or its query.
    AwsSigv4,
}

impl fmt::Display for Place {
    /// As policies write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::Basic => f.write_str("basic"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Form(name) => write!(f, "form:{name}"),
            Self::WebSocket(pointer) => write!(f, "websocket:{pointer}"),
            Self::Path => f.write_str("path"),
            Self::SshKey => f.write_str("ssh-key"),
            Self::Password => f.write_str("password"),
            Self::ClientCertificate => f.write_str("client-certificate"),
            Self::AwsSigv4 => f.write_str("aws-sigv4"),
        }
    }
}
