//! Sessions: who owns a listener or a proxy password, and the live policy, grants and secrets of each.
//!
//! A session is kept in `sessions.redb` (see [`keep`]), written before a change is answered, and restored at start, so that
//! the gateway works on alone while the supervisor is down.
use crate::control::types::{SessionSpec, SessionView};
use crate::secret::{Redactor, SessionSecrets};
use arc_swap::ArcSwap;
use sallyport_policy::{
    Decision, Destination, Grant, Host, KnownHost, Moment, Overlay, Permit, Policy, Problem, Reason, Refusal,
    Remedy, Request, Who,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

mod access;
mod bind;
pub mod brake;
mod carried;
pub mod certificate;
mod check;
pub mod exceeded;
pub mod keep;
pub mod layers;
mod minted;
mod opened;
mod overlay;
pub mod quota;
pub mod registry;
pub mod renew;
mod rotate;
pub mod shown;
mod trusted;

use bind::Bound;
use exceeded::Exceeded;
use keep::{Keeper, Kept, StateError};
use overlay::{rests_on_uses, valid};
use quota::{Pass, Quotas};
pub use registry::{SessionError, Sessions};

/// One run's door. Shared by everything that serves it; what can change is taken anew for each request.
pub struct Session {
    id: String,
    live: ArcSwap<Live>,
    overlay: ArcSwap<Overlay>,
    kept: Mutex<Kept>,
    keeper: Arc<Keeper>,
    /// What the log knows of it.
    recorded: Mutex<Option<opened::Facts>>,
    quotas: Arc<Quotas>,
    /// Fingerprint of the authority that its machine was told to trust.
    authority: OnceLock<String>,
    closed: CancellationToken,
}

/// What a session was last told.
struct Live {
    who: Arc<Who>,
    hosts: Arc<BTreeMap<String, IpAddr>>,
    upstream_roots_pem: Arc<str>,
    /// SHA-256 of these authorities.
    upstream_roots_hash: [u8; 32],
    /// Or what is wrong with it: then nothing passes.
    policy: Result<Policy, Vec<Problem>>,
    /// Of the policy.
    warnings: Vec<String>,
    /// Its credentials with their values of now; replaced alone where a value is another one.
    bound: ArcSwap<Bound>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
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
    /// What allowed it, in words; none where nothing did (yet).
    pub allowed: Option<Reason>,
    /// The answer.
    pub decision: Decision,
}

impl Session {
    /// Id, equal to the run's.
    pub fn id(&self) -> &str {
        &self.id
    }
    /// Facts vouched for.
    pub fn who(&self) -> Arc<Who> {
        self.live.load().who.clone()
    }
    /// Fixed addresses by canonical name.
    pub fn hosts(&self) -> Arc<BTreeMap<String, IpAddr>> {
        self.live.load().hosts.clone()
    }
    /// Authorities trusted upstream besides the system's, PEM.
    pub fn upstream_roots_pem(&self) -> Arc<str> {
        self.live.load().upstream_roots_pem.clone()
    }
    /// SHA-256 over [`Session::upstream_roots_pem`].
    pub fn upstream_roots_hash(&self) -> [u8; 32] {
        self.live.load().upstream_roots_hash
    }
    /// The secrets bound to this session. Replaced when the policy is; take it anew for each request.
    pub fn secrets(&self) -> Arc<SessionSecrets> {
        self.live.load().bound.load().secrets.clone()
    }
    /// Takes values out of a stream that may outlive the secrets of its beginning.
    pub fn redactor(self: &Arc<Self>) -> Option<Redactor> {
        let session = self.clone();
        self.secrets().redactor_following(move || session.secrets())
    }
    /// The keys by which its policy knows hosts over ssh.
    pub fn known_hosts(&self) -> Arc<[KnownHost]> {
        let live = self.live.load();
        let known = live.policy.as_ref().map(Policy::known_hosts);
        known.cloned().unwrap_or_else(|_| Arc::from([]))
    }
    /// Whether its policy binds a credential to a host at all; a permit says where it is put in.
    pub fn binds(&self, credential: &str, destination: &Destination) -> bool {
        let live = self.live.load();
        let credentials = live.policy.as_ref().map(Policy::credentials).unwrap_or_default();
        credentials
            .iter()
            .any(|own| own.name == credential && own.admits(destination))
    }
    /// Hash of the policy in force; empty where none can be used.
    pub fn policy_hash(&self) -> String {
        self.live.load().policy_hash().to_owned()
    }
    /// Cancelled when the session is removed: close everything that hangs on it.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }
    /// The grants whose time is not over; one that is used up stays until then, since streams may rest on it.
    pub fn grants(&self) -> Vec<Grant> {
        valid(&self.overlay.load(), jiff::Timestamp::now()).grants
    }
    /// When a grant ends; none where it has ended. What was opened under it must end then too.
    pub fn grant_expiry(&self, id: &str) -> Option<jiff::Timestamp> {
        self.grants()
            .into_iter()
            .find(|grant| grant.id == id)
            .map(|grant| grant.expires_at)
    }

    /// Decides under today's policy and grants; a grant with uses is counted down when a request rests on it.
    ///
    /// That count is on disk before this returns (some milliseconds); where it cannot be written, the answer is no.
    pub fn decide(&self, request: &Request) -> Decided {
        self.answer(request, true)
    }

    /// Decides what is decided again before it has an effect, as a push is once its refs are known: no grant is counted down.
    pub fn decide_ahead(&self, request: &Request) -> Decided {
        self.answer(request, false)
    }

    fn answer(&self, request: &Request, counts: bool) -> Decided {
        let at = jiff::Timestamp::now();
        let live = self.live.load();
        let overlay = self.overlay.load();
        let mut decision = live.decide(request, &overlay, at);
        if counts && !matches!(request.moment, Moment::Connect) && rests_on_uses(&decision, &overlay) {
            decision = self.spend(&live, request, at);
        }
        Decided {
            id: new_id(),
            at,
            policy_hash: live.policy_hash().to_owned(),
            allowed: match &decision {
                Decision::Allow(permit) => Some(permit.reason(request)),
                _ => None,
            },
            decision,
        }
    }

    /// The refusal of a host that may be reached at no port today; none where something may pass at some port.
    pub fn refuses_host(&self, host: &Host) -> Option<Decided> {
        let at = jiff::Timestamp::now();
        let live = self.live.load();
        let refusal = match &live.policy {
            Ok(policy) => policy.refuses_host(host, &live.who, &self.overlay.load(), at)?,
            Err(_) => unusable(),
        };
        Some(Decided {
            id: new_id(),
            at,
            policy_hash: live.policy_hash().to_owned(),
            allowed: None,
            decision: Decision::Deny(refusal),
        })
    }

    /// The rules that could not be weighed though all of a request is known, as those that look at the refs of a push.
    pub fn undecided(&self, request: &Request) -> Vec<String> {
        let (live, overlay) = (self.live.load(), self.overlay.load());
        let Ok(policy) = &live.policy else {
            return Vec::new();
        };
        let explained = policy.explain(request, &live.who, &overlay, jiff::Timestamp::now());
        let waiting = explained.rules.into_iter().filter(|note| note.matches == "later");
        waiting.map(|note| note.rule).collect()
    }

    /// Begins what a permit allows, within its rules' bounds; to be asked when everything else lets it be sent.
    /// `announced` is the length of the request's body, where it is known.
    pub fn begin(&self, permit: &Permit, announced: Option<u64>) -> Result<Pass, Exceeded> {
        let bounds: Vec<_> = permit
            .limits()
            .map(|(rule, limits)| (rule.to_owned(), limits.clone()))
            .collect();
        self.quotas.begin(&bounds, announced, Instant::now())
    }

    /// Decides again, alone, and takes one use off each grant that the answer rests on.
    fn spend(&self, live: &Live, request: &Request, at: jiff::Timestamp) -> Decision {
        let mut kept = self.kept();
        let mut overlay = valid(&self.overlay.load(), at);
        let decision = live.decide(request, &overlay, at);
        if !rests_on_uses(&decision, &overlay) {
            return decision;
        }
        let Decision::Allow(permit) = &decision else {
            return decision;
        };
        for grant in overlay
            .grants
            .iter_mut()
            .filter(|grant| permit.grants().contains(&grant.id))
        {
            grant.uses = grant.uses.map(|uses| uses.saturating_sub(1));
        }
        match self.set_grants(&mut kept, valid(&overlay, at)) {
            Ok(()) => decision,
            Err(error) => {
                tracing::error!(session = self.id, %error, "a grant's use could not be written; the request is refused");
                Decision::Deny(refused(
                    "grant",
                    "the gateway cannot write down that the grant was used; try again later",
                ))
            }
        }
    }

    /// Adds a grant under a new id; one of the same scope that is still there is given back instead.
    fn add_grant(&self, mut grant: Grant) -> Result<Grant, StateError> {
        let mut kept = self.kept();
        let mut overlay = valid(&self.overlay.load(), jiff::Timestamp::now());
        let same = |other: &&Grant| {
            let scope = |grant: &Grant| {
                (
                    grant.rule.clone(),
                    grant.credential.clone(),
                    grant.host.clone(),
                    grant.port,
                    grant.methods.clone(),
                    grant.path.clone(),
                )
            };
            scope(other) == scope(&grant) && other.by == grant.by && other.uses >= grant.uses.min(Some(1))
        };
        let by_policy = grant.by == "policy";
        if let Some(there) = overlay
            .grants
            .iter()
            .find(|other| same(other) && (by_policy || other.expires_at == grant.expires_at))
        {
            return Ok(there.clone());
        }
        grant.id = new_id();
        overlay.grants.push(grant.clone());
        self.set_grants(&mut kept, overlay)?;
        Ok(grant)
    }

    /// Takes a grant back.
    fn remove_grant(&self, id: &str) -> Result<(), StateError> {
        let mut kept = self.kept();
        let mut overlay = valid(&self.overlay.load(), jiff::Timestamp::now());
        overlay.grants.retain(|grant| grant.id != id);
        self.set_grants(&mut kept, overlay)
    }

    fn set_grants(&self, kept: &mut Kept, overlay: Overlay) -> Result<(), StateError> {
        let new = Kept {
            grants: overlay.grants.clone(),
            ..kept.clone()
        };
        self.keeper.save(&self.id, &new)?;
        *kept = new;
        self.overlay.store(Arc::new(overlay));
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What is behind the lock is replaced whole, so that a panic elsewhere leaves nothing half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the supervisor sees it.
    fn view(&self, ca_pem: &str) -> SessionView {
        let live = self.live.load();
        let bound = live.bound.load();
        let credentials = live.policy.as_ref().map(Policy::credentials).unwrap_or_default();
        let credentials = credentials
            .iter()
            .flat_map(|credential| self.credential_views(&live, credential));
        SessionView {
            id: self.id.clone(),
            policy_hash: live.policy_hash().to_owned(),
            proxy_token: self.kept().proxy_token.clone(),
            ca_pem: ca_pem.to_owned(),
            ssh_host_key: String::new(),
            credentials: credentials.collect(),
            warnings: [bound.warnings.as_slice(), &live.warnings].concat(),
            broken: live.policy.as_ref().err().cloned().unwrap_or_default(),
        }
    }
}

impl Live {
    fn new(spec: &SessionSpec, policy: Result<Policy, Vec<Problem>>, bound: Bound) -> Self {
        let found = policy.as_ref().map(Policy::warnings).unwrap_or_default();
        let warnings = found.iter().map(ToString::to_string).collect();
        Self {
            who: Arc::new(spec.who.clone()),
            hosts: Arc::new(spec.hosts.clone()),
            upstream_roots_pem: spec.upstream_roots_pem.as_str().into(),
            upstream_roots_hash: Sha256::digest(&spec.upstream_roots_pem).into(),
            policy,
            warnings,
            bound: ArcSwap::from_pointee(bound),
        }
    }

    fn policy_hash(&self) -> &str {
        self.policy.as_ref().map(Policy::hash).unwrap_or_default()
    }

    fn decide(&self, request: &Request, overlay: &Overlay, at: jiff::Timestamp) -> Decision {
        match &self.policy {
            Ok(policy) => policy.decide(request, &self.who, overlay, at),
            Err(_) => Decision::Deny(unusable()),
        }
    }
}

/// What is told where there is no policy.
fn unusable() -> Refusal {
    refused(
        "policy",
        "the policy of this run cannot be used, so nothing passes; who keeps the policies can see why",
    )
}

/// A refusal that comes from no rule and that nobody can grant.
fn refused(rule: &str, text: &str) -> Refusal {
    Refusal {
        reason: Reason {
            rule: rule.to_owned(),
            text: text.to_owned(),
        },
        remedy: Remedy::None,
        hint: None,
    }
}

/// A fresh UUID v7.
fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests;
