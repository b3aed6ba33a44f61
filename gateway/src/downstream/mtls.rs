//! The tunnels of remote machines: TCP with TLS on both sides, on which every connection is a CONNECT; the certificate
//! says whose it is.
use super::caller::{Caller, Owner};
use super::{requests, strangers};
use crate::Shared;
use crate::control::types::Verdict;
use crate::http::refusal::Problem;
use crate::http::{PeerFault, Version, serve as serve_http};
use crate::metrics::crowds::Crowd;
use crate::names::doh;
use crate::payload::Body;
use crate::session::Session;
use crate::session::certificate::{CertificateFault, Found};
use crate::stream::Stream;
use crate::tls::authority::AuthorityError;
use crate::tls::machine::{GATEWAY_NAME, TunnelAuthority, TunnelTlsError, Tunnels, fingerprint, session_of};
use ::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use jiff::Timestamp;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Pause after a failed accept, so that a shortage of descriptors does not spin.
const BACKOFF: Duration = Duration::from_millis(100);

/// Where tunnels come in.
#[derive(Debug)]
pub struct Entrance {
    /// The socket.
    pub listener: TcpListener,
    /// Its address, and who signs what both sides show.
    pub tunnels: Tunnels,
}

/// Why there is no such entrance. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum EntranceError {
    /// The address cannot be had.
    #[error("tunnels cannot be accepted on `{address}`: {error}; give another with `--tunnel ADDRESS:PORT`")]
    Address {
        /// Address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The authority cannot be had.
    #[error("the tunnels' authority: {0}")]
    Authority(#[from] AuthorityError),
}

impl Entrance {
    /// Where one is wanted; see [`Self::open`].
    pub async fn open_if(state: &Path, address: Option<SocketAddr>) -> Result<Option<Self>, EntranceError> {
        match address {
            Some(address) => Self::open(state, address).await.map(Some),
            None => Ok(None),
        }
    }

    /// Listens; the authority is loaded from the state folder, or made there.
    pub async fn open(state: &Path, address: SocketAddr) -> Result<Self, EntranceError> {
        let authority = Arc::new(TunnelAuthority::open(state)?);
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| EntranceError::Address { address, error })?;
        let address = listener
            .local_addr()
            .map_err(|error| EntranceError::Address { address, error })?;
        let tunnels = Tunnels { address, authority };
        Ok(Self { listener, tunnels })
    }
}

/// Accepts until the gateway drains.
pub async fn serve(shared: Arc<Shared>, entrance: Arc<Entrance>) {
    let places = Arc::new(Semaphore::new(shared.limits.tunnel_connections));
    loop {
        let accepted = tokio::select! {
            () = shared.draining.cancelled() => return,
            accepted = entrance.listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                let Ok(place) = places.clone().try_acquire_owned() else {
                    let crowds = shared.metrics.path().crowds();
                    crowds.refused(Crowd::Everybody, &peer);
                    continue;
                };
                let (shared, entrance) = (shared.clone(), entrance.clone());
                shared.tasks.clone().spawn(async move {
                    connection(shared, &entrance.tunnels.authority, (socket, peer)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a tunnel could not be accepted");
                tokio::time::sleep(BACKOFF).await;
            }
        }
    }
}

/// Why no tunnel came to be.
#[derive(Debug, thiserror::Error)]
enum TunnelFault {
    #[error(transparent)]
    Setup(#[from] TunnelTlsError),
    #[error("at the tunnel the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("at the tunnel the TLS handshake did not end within {0:?}")]
    Slow(Duration),
}

async fn connection(
    shared: Arc<Shared>,
    authority: &TunnelAuthority,
    (socket, peer): (TcpStream, SocketAddr),
) {
    if !shared.recorder.healthy() {
        tracing::error!("a tunnel was refused: the audit log cannot be written");
        return;
    }
    // Who it is, only the certificate says.
    let owner = strangers::turn(Some(peer));
    let shaking = shake_hands(&shared, authority, socket);
    let stream = match shared.turns.take(owner, shaking).await {
        Ok(Some(stream)) => stream,
        Ok(None) => return,
        Err(fault) => {
            let mut ledger = shared.recorder.open(None, None, "handshake");
            ledger.verdict(Verdict::Malformed, fault.to_string());
            return ledger.close("refused").await;
        }
    };
    let (version, found) = {
        let tls = stream.get_ref().1;
        let version = match tls.alpn_protocol() {
            Some(b"h2") => Version::Http2,
            _ => Version::Http1,
        };
        let certificate = tls.peer_certificates().and_then(<[_]>::first);
        let found = certificate
            .and_then(|certificate| Some((session_of(certificate)?, fingerprint(certificate))))
            .ok_or(CertificateFault::Closed)
            .and_then(|(id, fingerprint)| shared.sessions.by_certificate(&id, &fingerprint));
        (version, found)
    };
    let stream = Stream::new(stream);
    match found {
        Ok(found) => tunnel(shared, found, stream, version).await,
        Err(fault) => turn_away(&shared, Rejection::of(fault), stream, version).await,
    }
}

/// None where the other side left before it said anything, as whoever looks whether somebody listens does.
async fn shake_hands(
    shared: &Shared,
    authority: &TunnelAuthority,
    socket: TcpStream,
) -> Result<Option<TlsStream<Stream>>, TunnelFault> {
    let limit = shared.limits.handshake;
    let config = authority.server()?;
    let shaking = async move {
        socket.set_nodelay(true)?;
        let mut stream = Stream::new(socket);
        if !stream.look_further().await? {
            return Ok(None);
        }
        TlsAcceptor::from(config).accept(stream).await.map(Some)
    };
    match timeout(limit, shaking).await {
        Ok(shaken) => shaken.map_err(TunnelFault::Handshake),
        Err(_) => Err(TunnelFault::Slow(limit)),
    }
}

/// Serves a machine's tunnel until it ends, its session does, or its certificate does and all it carries has.
async fn tunnel(shared: Arc<Shared>, found: Found, stream: Stream, version: Version) {
    let Found { session, expires_at } = found;
    let door = shared.doors.of(&session);
    let Some(_place) = door.admit_tunnel() else {
        return turn_away(&shared, Rejection::too_many(&shared, session), stream, version).await;
    };
    let limits = shared.limits.of_tunnel();
    let stop = shared.draining.child_token();
    let (serving, id) = (shared.clone(), session.id().to_owned());
    let service = move |request| answer(serving.clone(), session.clone(), request);
    let ended = tokio::select! {
        ended = serve_http(&limits, &stop, stream, version, service) => ended,
        () = door.ended() => return,
        never = expire(expires_at, &stop) => match never {},
    };
    match ended {
        Ok(()) => {}
        Err(fault @ PeerFault::Broken(_)) => tracing::debug!(%fault, session = id, "a tunnel ended"),
        Err(fault) => {
            let session = shared.sessions.by_id(&id);
            let mut ledger = shared.recorder.open(session.as_deref(), None, "connect");
            ledger.verdict(Verdict::Malformed, format!("at the tunnel: {fault}"));
            ledger.close("refused").await;
        }
    }
}

/// Lets a tunnel take nothing new once its certificate has ended.
async fn expire(at: Timestamp, stop: &CancellationToken) -> std::convert::Infallible {
    let left = at.duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
    stop.cancel();
    std::future::pending().await
}

/// One request of a machine: a connection to carry, or a name.
async fn answer(shared: Arc<Shared>, session: Arc<Session>, request: Request<Incoming>) -> Response<Body> {
    let host = request.uri().host();
    let to_gateway = host.is_none_or(|host| host.eq_ignore_ascii_case(GATEWAY_NAME));
    if request.method() != Method::CONNECT && to_gateway && doh::is_query(&request) {
        return doh::answer(&shared, &session, request).await;
    }
    let caller = Caller {
        owner: Owner::Listener(session.id().into()),
        client: None,
        stranger: None,
        proxy: None,
    };
    requests::carry(shared, session, caller, request).await
}

/// Why whoever has shown a good certificate is not served.
struct Rejection {
    status: StatusCode,
    title: &'static str,
    detail: String,
    session: Option<Arc<Session>>,
}

impl Rejection {
    fn of(fault: CertificateFault) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            title: "the certificate opens no tunnel",
            detail: fault.to_string(),
            session: None,
        }
    }

    fn too_many(shared: &Shared, session: Arc<Session>) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            title: "the session has too many tunnels",
            detail: format!(
                "a session has {} tunnels at most; close one, or wait until a dead one is noticed",
                shared.limits.tunnels
            ),
            session: Some(session),
        }
    }
}

/// Tells it with the answer to every request, since a closed connection alone cannot be understood; for a short while.
async fn turn_away(shared: &Shared, rejection: Rejection, stream: Stream, version: Version) {
    let mut ledger = shared
        .recorder
        .open(rejection.session.as_deref(), None, "handshake");
    ledger.verdict(Verdict::Denied, format!("at the tunnel: {}", rejection.detail));
    ledger.status(rejection.status);
    let problem = Arc::new(Problem {
        status: rejection.status,
        title: rejection.title,
        detail: rejection.detail,
        error: "http_request_denied",
        id: ledger.id().to_owned(),
        refusal: None,
        close: version == Version::Http1,
        retry_after_s: None,
    });
    ledger.close("refused").await;
    let service = move |request: Request<Incoming>| {
        let response = problem.respond(request.method(), request.headers());
        std::future::ready(response)
    };
    let told = serve_http(&shared.limits, &shared.draining, stream, version, service);
    if let Ok(Err(fault)) = timeout(shared.limits.first_bytes, told).await {
        tracing::debug!(%fault, "a tunnel was turned away");
    }
}
