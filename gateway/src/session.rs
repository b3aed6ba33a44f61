//! Sessions: who owns a listener or a proxy password, and the live policy, grants and secrets of each.
use crate::secret::SessionSecrets;
use sallyport_policy::{Decision, Request, Who};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// One run's door.
#[derive(Debug)]
pub struct Session {
    id: String,
    who: Who,
    hosts: BTreeMap<String, IpAddr>,
    upstream_roots_pem: String,
    secrets: Arc<SessionSecrets>,
}

/// A decision with the id under which it is known everywhere.
#[derive(Debug)]
pub struct Decided {
    /// UUID v7.
    pub id: String,
    /// When.
    pub at: jiff::Timestamp,
    /// Hash of the policy that decided.
    pub policy_hash: String,
    /// The answer.
    pub decision: Decision,
}

impl Session {
    /// Id, equal to the run's.
    pub fn id(&self) -> &str {
        &self.id
    }
    /// Facts vouched for.
    pub fn who(&self) -> &Who {
        &self.who
    }
    /// Fixed addresses by canonical name.
    pub fn hosts(&self) -> &BTreeMap<String, IpAddr> {
        &self.hosts
    }
    /// Authorities trusted upstream besides the system's, PEM.
    pub fn upstream_roots_pem(&self) -> &str {
        &self.upstream_roots_pem
    }
    /// The secrets bound to this session. Replaced when the policy is; take it anew for each request.
    pub fn secrets(&self) -> Arc<SessionSecrets> {
        self.secrets.clone()
    }
    /// Decides under today's policy and grants; a grant with uses is counted down when a request rests on it.
    pub fn decide(&self, request: &Request) -> Decided {
        let _ = request;
        todo!()
    }
}

/// All sessions of this gateway, kept in redb.
#[derive(Debug)]
pub struct Sessions {}

impl Sessions {
    /// By id.
    pub fn by_id(&self, id: &str) -> Option<Arc<Session>> {
        let _ = id;
        todo!()
    }
    /// By the password of the explicit proxy; the user name must be the session's id. Constant time in the password.
    pub fn by_proxy_password(&self, user: &str, password: &str) -> Option<Arc<Session>> {
        let _ = (user, password);
        todo!()
    }
}
