//! A gateway's life: the state folder taken, every part opened, served until told to stop, everything written down.
mod fault;
mod hold;
mod roots;
mod sources;

pub use fault::StartError;
pub use hold::{hold, prepare, tell_running};
pub use roots::RootFiles;
pub use sources::SourcesFile;

use crate::audit::Sink;
use crate::control::{self, Control, handover};
use crate::downstream::Ways;
use crate::downstream::mtls::Entrance;
use crate::downstream::wanted::{self, Wanted};
use crate::limits::Limits;
use crate::names::resolve::Resolver;
use crate::names::server::NameServer;
use crate::secret::live::Keeper;
use crate::secret::source::Variables;
use crate::secret::store::Keys;
use crate::secret::{SecretStore, Sources};
use crate::session::Sessions;
use crate::ssh::host_key::HostKey;
use crate::standing::{self, Standing};
use crate::telemetry::Export;
use crate::tls::authorities::Authorities;
use crate::upstream::{Outlet, Parent, ParentSpec, Roots, trusting};
use crate::{Assembly, AssemblyError, Gateway};
use serde::Serialize;
use sources::FetchedFrom;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Folder of the authorities in the state folder.
pub const CA: &str = "ca";
/// How often the files of standing policies are looked at.
const WATCH: Duration = Duration::from_secs(1);

/// For giving leases back at the end.
const GIVING_BACK: Duration = Duration::from_secs(3);

/// How to serve.
#[derive(Debug)]
pub struct Serve {
    /// Socket of the control API.
    pub control: PathBuf,
    /// Socket for hand-overs.
    pub handover: PathBuf,
    /// Address of the explicit proxy.
    pub proxy: SocketAddr,
    /// Address for tunnels, if any.
    pub tunnel: Option<SocketAddr>,
    /// Address for metrics and health, if they are to have one.
    pub metrics: Option<SocketAddr>,
    /// Further ways in.
    pub wanted: Wanted,
    /// Files of authorities trusted upstream besides the system's, which a reload reads again.
    pub upstream_roots: RootFiles,
    /// What they hold, PEM.
    pub upstream_roots_pem: Vec<u8>,
    /// Where spans go, if anywhere.
    pub spans: Option<Export>,
    /// The proxy that the way out leads through.
    pub parent: Option<ParentSpec>,
    /// Names that a newly made authority may vouch for; none means every host.
    pub ca_permitted: Vec<String>,
    /// Name servers; none means the system's.
    pub dns: Vec<NameServer>,
    /// Variables that bindings may name.
    pub variables: Variables,
    /// The file that names services secrets are fetched from.
    pub sources: SourcesFile,
    /// What opens the local store.
    pub keys: Keys,
}

/// The line on standard output that says that every socket listens.
#[derive(Debug, Serialize)]
struct Ready<'a> {
    ready: bool,
    pid: u32,
    proxy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
    control: &'a Path,
    handover: &'a Path,
}

/// Everything that listens, and what it works on.
struct Parts {
    fetched: (Arc<FetchedFrom>, Arc<Keeper>),
    gateway: Gateway,
    sessions: Arc<Sessions>,
    authorities: Arc<Authorities>,
    standing: Arc<Standing>,
    sink: Sink,
    control: (UnixListener, Control),
    handover: UnixListener,
    proxy: SocketAddr,
    tunnel: Option<SocketAddr>,
    metrics: Option<TcpListener>,
}

/// Serves until SIGTERM or SIGINT, then ends in order. SIGHUP reads all values, the services they are fetched from, authorities (the gateway's own and those trusted
/// upstream) and the standing policies anew.
/// Prints one JSON line on standard output when every socket listens.
pub async fn serve(state: &Path, serve: Serve) -> Result<(), StartError> {
    prepare(state)?;
    let _held = hold(state)?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut reload = signal(SignalKind::hangup())?;
    let (control, handover) = (serve.control.clone(), serve.handover.clone());
    let upstream_roots = serve.upstream_roots.clone();
    let proxy_socket = serve.wanted.socket.as_ref().map(|(path, _)| path.clone());
    let stop = CancellationToken::new();
    let parts = open(state, serve, stop.clone()).await?;
    let host = Arc::new(parts.gateway.clone());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(handover::serve(
        parts.handover,
        parts.sessions.clone(),
        host,
        stop.clone(),
    ));
    let metrics = match parts.metrics {
        None => None,
        Some(listener) => {
            let address = listener.local_addr()?;
            let watched = control::watch::serve(listener, parts.control.1.clone());
            tasks.spawn(async move {
                if let Err(error) = watched.await {
                    tracing::error!(%error, "metrics are not served any more");
                }
            });
            Some(address)
        }
    };
    let api = control::serve::serve(parts.control.0, parts.control.1);
    tasks.spawn(async move {
        if let Err(error) = api.await {
            tracing::error!(%error, "the control API ended");
        }
    });
    let gateway = parts.gateway.clone();
    tasks.spawn(async move { gateway.run().await });
    tasks.spawn(watch_policies(parts.standing.clone(), stop.clone()));
    tasks.spawn(parts.sessions.clone().watch_values(stop.clone()));
    print_ready(&Ready {
        ready: true,
        pid: std::process::id(),
        proxy: &parts.proxy.to_string(),
        tunnel: parts.tunnel,
        metrics,
        control: &control,
        handover: &handover,
    })?;
    tracing::info!(proxy = %parts.proxy, state = %state.display(), "serving");
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = reload.recv() => {
                refresh(parts.sessions.clone(), parts.authorities.clone(), parts.fetched.clone());
                reload_roots(parts.gateway.clone(), upstream_roots.clone());
                tokio::spawn(reload_policies(parts.standing.clone()));
            }
        }
    }
    tracing::info!("stopping");
    stop.cancel();
    parts.gateway.drain().await;
    tasks.join_all().await;
    if tokio::time::timeout(GIVING_BACK, parts.fetched.1.close())
        .await
        .is_err()
    {
        tracing::warn!("not all leases were given back; the next start tries again");
    }
    if let Err(error) = parts.sink.flush().await {
        tracing::error!(%error, "the last audit records may be missing");
    }
    for socket in [control, handover].into_iter().chain(proxy_socket) {
        if let Err(error) = std::fs::remove_file(&socket) {
            tracing::warn!(%error, socket = %socket.display(), "a socket was left behind");
        }
    }
    Ok(())
}

async fn open(state: &Path, serve: Serve, stop: CancellationToken) -> Result<Parts, StartError> {
    let authorities = Arc::new(Authorities::open(&state.join(CA), &serve.ca_permitted)?);
    let ssh_host_key = Arc::new(HostKey::open(state)?);
    let store = Arc::new(SecretStore::open_with(state, serve.keys)?);
    let limits = Limits::default();
    let variables = serve.variables;
    let (fetched_from, secrets) =
        FetchedFrom::open(state, &serve.sources, store.clone(), variables.clone(), &limits)?;
    let sources =
        Sources::new(store.clone(), variables, state.join("secret-files")).fetching(secrets.clone());
    let sink = Sink::open(state)?;
    let kept = standing::Kept::open(state)?;
    let sessions = Sessions::open_under(kept.layers(), state, Arc::new(sources), sink.clone())?;
    // Before anybody can make another one: machines of an earlier start trust this one.
    sessions.all_trusting(authorities.current().fingerprint())?;
    let proxy = TcpListener::bind(serve.proxy)
        .await
        .map_err(|error| StartError::Proxy {
            address: serve.proxy,
            error,
        })?;
    let address = proxy.local_addr()?;
    let entrance = Entrance::open_if(state, serve.tunnel).await?;
    let tunnels = entrance.as_ref().map(|entrance| entrance.tunnels.clone());
    let metrics_listener = match serve.metrics {
        None => None,
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .map_err(|error| StartError::Metrics { address, error })?,
        ),
    };
    // These servers are checked with the authorities of the start, whatever a reload finds: their connections are the resolver's.
    let over_tls = serve.dns.iter().any(NameServer::is_over_tls);
    let trust = over_tls.then(|| trusting(&serve.upstream_roots_pem));
    let resolver = Resolver::new(&serve.dns, trust.transpose().map_err(AssemblyError::from)?)?;
    let control = control::bind(&serve.control)?;
    let handover = control::bind(&serve.handover)?;
    let gateway = Gateway::new(Assembly {
        sessions: sessions.clone(),
        sink: sink.clone(),
        authorities: authorities.clone(),
        ssh_host_key: ssh_host_key.clone(),
        upstream: Outlet {
            roots_pem: serve.upstream_roots_pem,
            parent: serve.parent.map(|spec| Parent::new(spec, &store)),
            ..Outlet::new(resolver)
        },
        ways: Ways {
            tunnel: entrance,
            own: own_addresses(metrics_listener.as_ref())?,
            ..wanted::open(proxy, serve.wanted)?
        },
        limits,
    })?;
    let metrics = gateway.metrics().clone();
    let standing = Standing::start(kept, sessions.clone(), sink.clone(), metrics.clone()).await?;
    let api = Control {
        sessions: sessions.clone(),
        standing: standing.clone(),
        metrics,
        sink: sink.clone(),
        secrets: store,
        authorities: authorities.clone(),
        ssh_host_key: ssh_host_key.known_hosts_line().into(),
        proxy: address.to_string().into(),
        tunnel: tunnels.clone(),
        stop,
    };
    Ok(Parts {
        fetched: (Arc::new(fetched_from), secrets),
        gateway,
        sessions,
        authorities,
        standing,
        sink,
        control: (control, api),
        handover,
        proxy: address,
        tunnel: tunnels.map(|tunnels| tunnels.address),
        metrics: metrics_listener,
    })
}

fn own_addresses(metrics: Option<&TcpListener>) -> io::Result<Vec<SocketAddr>> {
    metrics.map(TcpListener::local_addr).into_iter().collect()
}

/// Reads all values anew, beside the serving.
fn refresh(
    sessions: Arc<Sessions>,
    authorities: Arc<Authorities>,
    (fetched_from, secrets): (Arc<FetchedFrom>, Arc<Keeper>),
) {
    tokio::task::spawn_blocking(move || {
        match fetched_from.reload(&secrets) {
            Ok(true) => tracing::info!("the services that secrets are fetched from were read anew"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, kept = "those before stay in use", "the services that secrets are fetched from were not read anew")
            }
        }
        match sessions.refresh_secrets() {
            Ok(()) => tracing::info!("all values were read anew"),
            Err(error) => tracing::error!(%error, "values were not read anew"),
        }
        // A machine that was told of no authority yet may trust the one that was current all the same.
        if let Err(error) = sessions.all_trusting(authorities.current().fingerprint()) {
            return tracing::error!(%error, "the authorities were not read anew");
        }
        match authorities.reload() {
            Ok(()) => tracing::info!("the authorities were read anew"),
            Err(error) => tracing::error!(%error, "the authorities were not read anew"),
        }
    });
}

/// Reads the authorities trusted upstream anew, beside the serving. Where one file is wrong, all stay as they are.
fn reload_roots(gateway: Gateway, files: RootFiles) {
    tokio::task::spawn_blocking(move || {
        let loaded = match files.read() {
            Ok(pem) => gateway.trust_upstream(&pem),
            Err((path, error)) => {
                let (path, kept) = (path.display(), "those before stay in force");
                return tracing::error!(%path, %error, kept, "the authorities trusted upstream were not read anew");
            }
        };
        match loaded {
            Ok(Roots {
                system,
                own,
                unread,
                changed,
            }) => tracing::info!(
                system,
                own,
                unread,
                changed,
                "the authorities trusted upstream were read anew; new connections are checked with them"
            ),
            Err(error) => {
                let kept = "those before stay in force";
                tracing::error!(%error, kept, "the authorities trusted upstream were not read anew");
            }
        }
    });
}

async fn reload_policies(standing: Arc<Standing>) {
    match standing.reload().await {
        Ok(_) => tracing::info!("the standing policies were looked at"),
        Err(error) => tracing::error!(%error, "the standing policies could not be looked at"),
    }
}

/// Looks for changed files of policies. A fault that lasts is said once.
async fn watch_policies(standing: Arc<Standing>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(WATCH);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut said = String::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let fault = standing
            .poll()
            .await
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        if fault != said && !fault.is_empty() {
            tracing::error!(error = fault, "the standing policies could not be looked at");
        }
        said = fault;
    }
}

fn print_ready(ready: &Ready<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(ready)?)?;
    out.flush()
}
