//! The control API's wire types: all of the gateway that the supervisor may import.
//!
//! Shapes, on the socket `gateway.sock`:
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `GET /healthz` | | [`Health`] |
//! | `GET /readyz` | | [`Readiness`]; 503 where it is not ready |
//! | `PUT /v1/sessions/{id}` | [`SessionSpec`] | [`SessionView`]; idempotent: a second one replaces the policy, keeps placeholders and grants |
//! | `GET /v1/sessions` | | `[`[`SessionView`]`]` |
//! | `GET /v1/sessions/{id}` | | [`SessionView`] |
//! | `DELETE /v1/sessions/{id}` | | 204 |
//! | `POST /v1/sessions/{id}/access` | [`AccessRequest`] | [`AccessAnswer`] |
//! | `POST /v1/sessions/{id}/grants` | [`sallyport_policy::Grant`] | 204 |
//! | `POST /v1/sessions/{id}/certificate` | [`CertificateRequest`] | [`MachineCertificate`]; the newest two of a session open tunnels |
//! | `GET /v1/events?after=N` (or `Last-Event-ID: N`) | | SSE, each `data` an [`AuditRecord`], `id` its sequence |
//! | `GET /v1/audit?...` [`AuditQuery`] | | `[`[`AuditRecord`]`]`, newest first |
//! | `GET /v1/secrets` | | names |
//! | `PUT /v1/secrets/{name}` | the value, `application/octet-stream` | 204 |
//! | `DELETE /v1/secrets/{name}` | | 204 |
//! | `GET /v1/policies` | | [`StandingPolicies`] |
//! | `POST /v1/policies/reload` | | [`StandingPolicies`] after the files were read |
//! | `POST /v1/policies/check` | [`PolicyCheck`] | `[`[`sallyport_policy::Problem`]`]`: errors, or warnings |
//! | `GET /v1/policies/{key}/versions` | | `[`[`PolicyVersion`]`]`, newest first; `{key}` is a [`PolicyKey`] as text |
//! | `GET /v1/policies/{key}/versions/{n}` | | [`PolicyEdition`] |
//! | `PUT /v1/policies/{key}` | [`Publication`] | [`PolicyVersion`] in force |
//! | `POST /v1/policies/{key}/rollback` | [`Rollback`] | [`PolicyVersion`] in force, a new one |
//! | `POST /v1/policies/{key}/withdraw` | [`Withdrawal`] | [`PolicyVersion`], a new one that binds nobody |
//! | `GET /metrics` | | OpenMetrics text |
//!
//! On the socket `handover.sock`: one `SOCK_STREAM` message, a JSON line [`Handover`] with the descriptors as
//! `SCM_RIGHTS` in the same order as [`Handover::listeners`]; answered by one JSON line [`HandoverAnswer`].
//! Errors are `application/problem+json` [`Problem`] everywhere.
use sallyport_policy::{Lender, PolicyText, Refusal, Wanted, Who};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

mod policies;

pub use policies::{
    PolicyCheck, PolicyEdition, PolicyKey, PolicyVersion, Publication, Rollback, StandingPolicies,
    StandingPolicy, Withdrawal,
};

/// Answer to a health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Gateway version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Address of the explicit proxy.
    pub proxy: String,
}

/// Whether the gateway takes work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Nothing is in the way.
    pub ready: bool,
    /// What is in the way, in words.
    pub faults: Vec<String>,
}

/// What a session is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// Facts that the supervisor vouches for.
    pub who: Who,
    /// The policy first, then what its `include` names.
    pub policies: Vec<PolicyText>,
    /// Fixed addresses for names, before DNS (an environment's own hosts file).
    #[serde(default)]
    pub hosts: BTreeMap<String, IpAddr>,
    /// PEM of authorities trusted upstream besides the system's.
    #[serde(default)]
    pub upstream_roots_pem: String,
}

/// A session as the supervisor sees it. Holds placeholders, never values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The session's id (the run's id).
    pub id: String,
    /// Hash of the policy in force.
    pub policy_hash: String,
    /// Password for the explicit proxy (`Proxy-Authorization: Basic`, user = session id).
    pub proxy_token: String,
    /// PEM of the authority that signs leaves.
    pub ca_pem: String,
    /// By what machines know this gateway over ssh: a line of OpenSSH's `known_hosts` for every host. The control API fills it in.
    #[serde(default)]
    pub ssh_host_key: String,
    /// Placeholders by credential.
    pub credentials: Vec<CredentialView>,
    /// Warnings about policy and bindings, for people.
    pub warnings: Vec<String>,
    /// Why its policy cannot be used; nothing passes for it until that is mended. Empty where all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<sallyport_policy::Problem>,
}

/// What the agent may know of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialView {
    /// Name in the policy.
    pub name: String,
    /// Environment variable for the placeholder.
    pub env: Option<String>,
    /// The placeholder.
    pub placeholder: String,
    /// Where it may go.
    pub hosts: Vec<String>,
    /// Single ports at which rules take it there; empty where they name none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Where in a request it may stand, as policies write it: `bearer`, `header:NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// The user name that belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether every rule that allows something at its hosts takes it there, so that it may be shown with each request.
    #[serde(default)]
    pub throughout: bool,
    /// Who lends it, where it must be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lender: Option<Lender>,
    /// Hosts at which it is lent now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lent_at: Vec<String>,
}

/// Asks for the certificate by which a remote machine's tunnel is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateRequest {
    /// PKCS#10 as PEM, with a key of P-256 that never left the machine; nothing but the key is taken from it.
    pub csr: String,
}

/// What a remote machine needs for its tunnel besides its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCertificate {
    /// Its certificate, PEM.
    pub certificate_pem: String,
    /// The authority that signed it and the gateway's own, PEM; for tunnels alone.
    pub authority_pem: String,
    /// The name in the gateway's certificate, whatever address is dialled.
    pub name: String,
    /// When the certificate ends; ask again before.
    pub expires_at: jiff::Timestamp,
    /// Where the gateway listens for tunnels; behind another address where it listens on all.
    pub address: String,
}

/// An agent's wish to reach something, or to use a credential there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRequest {
    /// What is wanted.
    pub wanted: Wanted,
    /// Why, in the agent's words; shown to people, never believed.
    pub why: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum AccessAnswer {
    /// Granted by the policy, in force now.
    Granted {
        /// The grant, with scope and expiry.
        grant: sallyport_policy::Grant,
    },
    /// Not granted here; the reason says whether a person may.
    Refused {
        /// Why.
        reason: sallyport_policy::GrantRefused,
    },
}

/// A descriptor's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerKind {
    /// Listening TCP socket reached by REDIRECT: `SO_ORIGINAL_DST` says where the client meant to go.
    Redirect,
    /// UDP socket that receives DNS queries.
    Dns,
    /// Listening TCP socket with `IP_TRANSPARENT`, reached by TPROXY: an accepted socket's local address is where the client meant to
    /// go.
    Transparent,
    /// Listening TCP or unix socket on which the explicit proxy is spoken (HTTP, SOCKS 5, TLS to the proxy), without credentials:
    /// what it accepts is the session's.
    Proxy,
}

/// Announces descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// Session that owns whatever these sockets accept.
    pub session: String,
    /// One for each descriptor, in order.
    pub listeners: Vec<ListenerKind>,
}

/// Answer to a handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandoverAnswer {
    /// All are being served; earlier ones of this session are closed.
    Serving,
    /// None is.
    Refused(String),
}

/// How one decision or exchange ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Let through.
    Allowed,
    /// Refused by policy or guard.
    Denied,
    /// A person must say yes.
    Asked,
    /// Malformed input from the machine.
    Malformed,
    /// Allowed, but the upstream failed.
    UpstreamFailed,
    /// A grant was given.
    Granted,
    /// Let through, though it would have been refused: the refusal is in `mode: observe`.
    Observed,
}

impl Verdict {
    /// As it stands in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Asked => "asked",
            Self::Malformed => "malformed",
            Self::UpstreamFailed => "upstream-failed",
            Self::Granted => "granted",
            Self::Observed => "observed",
        }
    }
}

/// One line of the network log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Position in the log, from 1, without gaps.
    pub sequence: u64,
    /// Decision id; stands in the refusal, the log, the conversation.
    pub id: String,
    /// When the request was decided (UTC).
    pub at: jiff::Timestamp,
    /// Session (run) id; empty for traffic without a known owner.
    pub session: String,
    /// Who, as vouched for.
    pub user: String,
    /// `connect`, `http`, `websocket`, `dns`, `tcp`, `ssh`, `tls`, `postgres`, `access`, `session`, `policy`, `handshake`,
    /// `secret` (a fetched one that can be had no more, or again).
    pub kind: String,
    /// Host as decided on.
    pub host: String,
    /// Port.
    pub port: u16,
    /// HTTP method, if any; `LOGIN` or `CANCEL` of PostgreSQL; `exec`, `shell`, `subsystem` or `forward` of ssh.
    pub method: Option<String>,
    /// Canonical path without query, if any; control characters escaped, bounded. `/DATABASE/ROLE` of a PostgreSQL log-in,
    /// percent-encoded.
    pub path: Option<String>,
    /// User name over ssh, with which the agent logs in and the gateway upstream; absent elsewhere, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// What was decided.
    pub verdict: Verdict,
    /// Rule that decided.
    pub rule: String,
    /// Sentence that explains it.
    pub reason: String,
    /// The refusal as the agent read it, if it was refused by policy.
    pub refusal: Option<Refusal>,
    /// Policy in force.
    pub policy_hash: String,
    /// HTTP status given to the client, if any.
    pub status: Option<u16>,
    /// Body bytes from the machine to upstream.
    pub bytes_out: u64,
    /// Body bytes from upstream to the machine.
    pub bytes_in: u64,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// Names of credentials put in.
    pub credentials_used: Vec<String>,
    /// Names of credentials taken out of the answer.
    pub credentials_redacted: Vec<String>,
    /// `complete`, or what broke it off.
    pub ending: String,
    /// Whether the machine spoke TLS; absent where it is not about HTTP, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
    /// Where the client is, for clients of the explicit proxy; behind a load balancer as its PROXY header says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    /// Ids of the grants that it rested on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// All that was vouched for; in the records of kind `session`, which stand before what the session does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Box<Who>>,
    /// Hash of the record before this one, and this one: SHA-256, hex.
    pub chain: String,
}

impl AuditRecord {
    /// A record made now, with an id of its own, that says no more than its kind and its verdict.
    pub fn of(kind: impl Into<String>, verdict: Verdict) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            at: jiff::Timestamp::now(),
            ..Self::blank(kind.into(), verdict)
        }
    }

    /// A record without time and id, to stand where one was taken away.
    pub(crate) fn blank(kind: String, verdict: Verdict) -> Self {
        Self {
            sequence: 0,
            id: String::new(),
            at: jiff::Timestamp::UNIX_EPOCH,
            session: String::new(),
            user: String::new(),
            kind,
            host: String::new(),
            port: 0,
            method: None,
            path: None,
            login: None,
            verdict,
            rule: String::new(),
            reason: String::new(),
            refusal: None,
            policy_hash: String::new(),
            status: None,
            bytes_out: 0,
            bytes_in: 0,
            duration_ms: 0,
            credentials_used: Vec::new(),
            credentials_redacted: Vec::new(),
            ending: String::new(),
            tls: None,
            client: None,
            grants: Vec::new(),
            who: None,
            chain: String::new(),
        }
    }
}

/// A search of the network log. All conditions hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditQuery {
    /// Session (run) id.
    pub session: Option<String>,
    /// Host, or its ending at a label boundary.
    pub host: Option<String>,
    /// Verdict.
    pub verdict: Option<Verdict>,
    /// Only records before this sequence (for paging).
    pub before: Option<u64>,
    /// At most this many; 100 by default, 1000 at most.
    pub limit: Option<u32>,
}

/// An error of the API (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Short name of the kind of problem.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What is wrong and what to do.
    pub detail: String,
    /// Problems of a policy, where that is what is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<sallyport_policy::Problem>,
}
