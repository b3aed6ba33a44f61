//! What gives values that must be fetched: one trait for all services.
use super::own::Named;
use crate::secret::Value;
use async_trait::async_trait;
use sallyport_policy::{Source, Who};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A service that gives values. Each call is ended by the keeper when it takes too long.
#[async_trait]
pub trait Provider: Send + Sync + fmt::Debug {
    /// Whether the operator lets a policy name this for such a run; otherwise why not, in words for the policy's author.
    fn admits(&self, from: &Source, who: &Who) -> Result<(), String>;

    /// Fetches for one session. The answer's `fields` are named as `from` names them.
    async fn fetch(&self, wanted: &Wanted) -> Result<Fetched, Fault>;

    /// Makes a lease last longer; how long from now on.
    async fn renew(&self, lease: &Lease) -> Result<Duration, Fault>;

    /// Gives a lease back, by its id. One that is gone already is no fault.
    async fn revoke(&self, lease: &str) -> Result<(), Fault>;

    /// What keeps it from giving anything to anybody, in words for the operator; none while it can be used.
    fn fault(&self) -> Option<String>;
}

/// What is fetched for a session, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Session.
    pub session: String,
    /// Whose it is, as vouched for.
    pub who: Arc<Who>,
    /// Where it comes from; the name of a single field is left empty.
    pub from: Source,
    /// How long a value may be used at most, as the policy says.
    pub ttl: Option<Duration>,
}

/// What a provider gave.
#[derive(Debug)]
pub struct Fetched {
    /// Values by the names of their fields; a source with one value alone has it under the empty name.
    pub fields: BTreeMap<String, Value>,
    /// What is to be renewed, and given back in the end.
    pub lease: Option<Lease>,
    /// How long from the call's beginning it may be used; none where it has no end.
    pub valid_for: Option<Duration>,
    /// On whose life it depends.
    pub parent: Option<watch::Receiver<Parent>>,
}

/// A lease, known to its provider by an id, which is no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Id.
    pub id: String,
    /// Whether it can be made to last longer.
    pub renewable: bool,
    /// How long it is asked to last on each renewal.
    pub span: Duration,
}

/// The life that leases depend on, as that of the token under which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parent {
    /// When it ends, as known now.
    pub ends: Option<Instant>,
    /// Whether it cannot be made to last longer.
    pub last: bool,
}

/// Why a provider did not do what was asked. Never names a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Fault {
    /// What is wrong, for operator and agent.
    pub sentence: String,
    /// Whether the same may work in a moment, without anybody doing anything.
    pub passing: bool,
}

impl Fault {
    /// The service cannot be reached or is not able to answer now.
    pub fn passing(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            passing: true,
        }
    }

    /// The service has said no; somebody must change something.
    pub fn lasting(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            passing: false,
        }
    }
}

/// The providers of a gateway, by the kind of source that they serve: `vault`, `github-app`, `oauth`, `aws`.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    all: BTreeMap<&'static str, Arc<dyn Provider>>,
    /// What they log in with themselves.
    reserved: Vec<Named>,
}

impl Providers {
    /// Adds one for a kind of source, in place of the one before.
    pub fn put(&mut self, kind: &'static str, provider: Arc<dyn Provider>) {
        self.all.insert(kind, provider);
    }

    /// The one of a kind.
    pub fn of(&self, kind: &str) -> Option<&Arc<dyn Provider>> {
        self.all.get(kind)
    }

    /// Keeps these from policies.
    pub fn reserve(&mut self, named: Vec<Named>) {
        self.reserved.extend(named);
    }

    /// Whether a policy names what is reserved; files of policies lie in `folder`.
    pub(super) fn reserves(&self, from: &Source, folder: &Path) -> bool {
        self.reserved.iter().any(|named| match (named, from) {
            (Named::Store(own), Source::Store(name)) | (Named::Env(own), Source::Env(name)) => own == name,
            (Named::File(own), Source::File(name)) => {
                let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
                place(own) == place(&folder.join(name))
            }
            _ => false,
        })
    }

    /// What is wrong with each that cannot be used.
    pub fn faults(&self) -> Vec<String> {
        self.all
            .values()
            .filter_map(|provider| provider.fault())
            .collect()
    }
}

/// All kinds of sources that are fetched.
pub(super) const KINDS: [&str; 4] = ["vault", "github-app", "oauth", "aws"];

/// The kind of a source that must be fetched, as in metrics; none for those that are read at once.
pub(super) fn kind(from: &Source) -> Option<&'static str> {
    match from {
        Source::Store(_) | Source::Env(_) | Source::File(_) | Source::Answer { .. } => None,
        Source::Vault { .. } => Some("vault"),
        Source::GithubApp { .. } => Some("github-app"),
        Source::Oauth(_) => Some("oauth"),
        Source::AwsSecret { .. } | Source::AwsParameter(_) => Some("aws"),
    }
}

/// What credentials of one policy share where they name it alike, and the field that this one takes of it.
pub(super) fn shared(from: &Source) -> (Source, &str) {
    match from {
        Source::Vault { path, field } => {
            let whole = Source::Vault {
                path: path.clone(),
                field: String::new(),
            };
            (whole, field)
        }
        Source::AwsSecret { name, field } => {
            let whole = Source::AwsSecret {
                name: name.clone(),
                field: None,
            };
            (whole, field.as_deref().unwrap_or_default())
        }
        other => (other.clone(), ""),
    }
}

/// A source in words, for logs and warnings.
pub(super) fn shown(from: &Source) -> String {
    match from {
        Source::Store(name) => format!("secret `{name}` of the store"),
        Source::Env(name) => format!("variable `{name}`"),
        Source::File(name) => format!("secret file `{name}`"),
        Source::Vault { path, .. } => format!("`{path}` in Vault"),
        Source::GithubApp { app, .. } => format!("GitHub App `{app}`"),
        Source::Oauth(name) => format!("log-in `{name}` by OAuth"),
        Source::AwsSecret { name, .. } => format!("secret `{name}` of AWS"),
        Source::AwsParameter(name) => format!("parameter `{name}` of AWS"),
        Source::Answer { host, path, .. } => format!("log-in at `{host}{path}`"),
    }
}
