//! The gateway: every byte that leaves an agent's machine passes here, is decided, and leaves a record.
//!
//! Read `http/exchange.rs` first: one request through every stage. Before it comes `connection.rs`: one connection
//! from its first bytes to the protocol that is served on it.
pub mod audit;
pub mod config;
pub mod connection;
pub mod control;
pub mod crypto;
pub mod downstream;
pub mod farewell;
pub mod git;
pub mod http;
pub mod intake;
pub mod lasting;
pub mod ledger;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod names;
pub mod payload;
pub mod postgres;
pub mod secret;
pub mod session;
pub mod sniff;
pub mod spoken;
pub mod ssh;
pub mod standing;
pub mod start;
pub mod state_file;
pub mod stream;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod tunnel;
pub mod turns;
pub mod upstream;

use audit::Sink;
use downstream::Ways;
use downstream::mtls::{self, Entrance};
use downstream::strangers::Strangers;
use http::via::Pseudonym;
use intake::Doors;
use ledger::Recorder;
use limits::Limits;
use metrics::Metrics;
use session::Sessions;
use ssh::host_key::HostKey;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tls::authorities::Authorities;
use tls::authority::AuthorityError;
use tls::leaf::Leaves;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turns::Turns;
use upstream::{Outlet, Roots, Upstream, UpstreamFault};

/// How often ended sessions and idle upstream connections are looked for.
const SWEEP: Duration = Duration::from_secs(2);

/// What a gateway is assembled from.
#[derive(Debug)]
pub struct Assembly {
    /// Who may come in, and by which policy.
    pub sessions: Arc<Sessions>,
    /// Where records go.
    pub sink: Sink,
    /// Who signs leaves.
    pub authorities: Arc<Authorities>,
    /// By what machines know this gateway over ssh.
    pub ssh_host_key: Arc<HostKey>,
    /// The way out.
    pub upstream: Outlet,
    /// The ways in.
    pub ways: Ways,
    /// Limits.
    pub limits: Limits,
}

/// Why a gateway cannot be assembled. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The leaf key or the authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The authorities trusted upstream.
    #[error(transparent)]
    Upstream(#[from] UpstreamFault),
    /// The proxy's socket.
    #[error("the proxy's socket cannot be used: {0}")]
    Socket(#[from] std::io::Error),
}

/// What every connection needs. Modules get this, never the configuration.
#[derive(Debug)]
pub struct Shared {
    pub(crate) limits: Arc<Limits>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) recorder: Recorder,
    pub(crate) leaves: Leaves,
    pub(crate) ssh_host_key: Arc<HostKey>,
    pub(crate) upstream: Upstream,
    pub(crate) doors: Doors,
    pub(crate) metrics: Metrics,
    pub(crate) pseudonym: Pseudonym,
    pub(crate) cancels: postgres::Cancels,
    pub(crate) proxy_places: Arc<Semaphore>,
    pub(crate) strangers: Arc<Strangers>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) draining: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// A gateway that serves. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
    ways: Arc<Ways>,
    tunnel: Option<Arc<Entrance>>,
}

impl Gateway {
    /// Puts the parts together; nothing is accepted yet but for handed-over listeners.
    pub fn new(mut assembly: Assembly) -> Result<Self, AssemblyError> {
        let limits = Arc::new(assembly.limits);
        let metrics = Metrics::default();
        let turns = Turns::new(limits.handshakes_at_once);
        let (draining, tasks) = (CancellationToken::new(), TaskTracker::new());
        let own = assembly.ways.addresses()?;
        let tunnel = assembly.ways.tunnel.take().map(Arc::new);
        let shared = Shared {
            sessions: assembly.sessions,
            recorder: Recorder::new(assembly.sink, tasks.clone(), metrics.clone()),
            leaves: Leaves::new(assembly.authorities, metrics.path().clone())?,
            ssh_host_key: assembly.ssh_host_key,
            upstream: Upstream::new(
                assembly.upstream,
                own,
                (limits.clone(), metrics.path().clone(), turns.clone()),
            )?,
            metrics,
            pseudonym: Pseudonym::random()?,
            cancels: postgres::Cancels::default(),
            proxy_places: Arc::new(Semaphore::new(limits.proxy_connections)),
            doors: Doors::new(limits.clone(), turns.clone(), draining.clone()),
            strangers: Strangers::new(limits.strangers),
            turns,
            limits,
            draining,
            tasks,
        };
        Ok(Self {
            shared: Arc::new(shared),
            tunnel,
            ways: Arc::new(assembly.ways),
        })
    }

    /// PEM of the authority that new machines must trust.
    pub fn authority_pem(&self) -> String {
        self.shared.leaves.authority_pem()
    }

    /// Trusts upstream the system's authorities, read anew, and these (PEM) besides, from the next connection on. Kept connections
    /// that were checked with others are closed once idle. Where they cannot be used, nothing changes.
    pub fn trust_upstream(&self, roots_pem: &[u8]) -> Result<Roots, UpstreamFault> {
        self.shared.upstream.trust_anew(roots_pem)
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Serves every way in of this host until `drain` is called.
    pub async fn run(&self) {
        if let Some(tunnel) = &self.tunnel {
            let serving = mtls::serve(self.shared.clone(), tunnel.clone());
            self.shared.tasks.spawn(serving);
        }
        let mut sweep = tokio::time::interval(SWEEP);
        let mut serving = pin!(self.ways.serve(&self.shared));
        loop {
            tokio::select! {
                () = self.shared.draining.cancelled() => return,
                _ = sweep.tick() => {
                    self.shared.doors.sweep();
                    self.shared.upstream.sweep();
                }
                () = serving.as_mut() => return,
            }
        }
    }

    /// Takes nothing new, lets open exchanges end within the limit, then cuts them. Returns when all records are handed over.
    pub async fn drain(&self) {
        self.shared.draining.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(self.shared.limits.drain, self.shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("open exchanges were cut after {:?}", self.shared.limits.drain);
        }
    }
}
