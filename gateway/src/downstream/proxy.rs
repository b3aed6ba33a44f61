//! The explicit proxy: one connection from its first byte to the protocol of a proxy that is spoken on it.
//!
//! A load balancer's header first, where one must come; then TLS to the proxy itself, where the client begins with it; then
//! HTTP (`requests`) or SOCKS (`socks`).
use super::balancer::{self, NoHeader};
use super::caller::{Caller, Owner};
use super::opening::{Opening, opening};
use super::proxy_header::{Header, ProxyHeader};
use super::socket::{Accepted, Socket, pause};
use super::{requests, socks, strangers};
use crate::Shared;
use crate::control::types::Verdict;
use crate::http::Version;
use crate::metrics::crowds::Crowd;
use crate::session::Session;
use crate::sniff::ClientHello;
use crate::stream::Stream;
use crate::tls;
use crate::turns;
use ipnet::IpNet;
use sallyport_policy::{Destination, Host};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What holds for all connections that come by one socket.
#[derive(Debug, Clone)]
pub struct Entrance {
    /// How it is known whose a connection is.
    pub owner: Owner,
    /// How many may be open.
    pub places: Arc<Semaphore>,
    /// The load balancers' networks. From there a PROXY header must come, from elsewhere none may.
    pub balancers: Arc<[IpNet]>,
}

/// Why a connection is not served. The client's or the operator's to mend.
#[derive(Debug)]
enum End {
    /// Nothing was said, or the connection broke.
    Gone(io::Error),
    /// Too many from its address have not said who they are.
    Crowded,
    /// For the record.
    Refused(Verdict, String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// Accepts until dropped, and serves each connection in the background.
pub async fn accept(shared: &Arc<Shared>, socket: &Socket, entrance: Entrance) {
    loop {
        let accepted = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let Ok(place) = entrance.places.clone().try_acquire_owned() else {
            let crowds = shared.metrics.path().crowds();
            crowds.refused(Crowd::Everybody, &shown(accepted.peer));
            continue;
        };
        let (shared, entrance) = (shared.clone(), entrance.clone());
        shared.tasks.clone().spawn(async move {
            serve(shared, accepted, entrance).await;
            drop(place);
        });
    }
}

async fn serve(shared: Arc<Shared>, accepted: Accepted, entrance: Entrance) {
    if !shared.recorder.healthy() {
        tracing::error!("a proxy connection was refused: the audit log cannot be written");
        return;
    }
    let mut caller = Caller {
        owner: entrance.owner.clone(),
        client: accepted.peer,
        stranger: None,
        proxy: None,
    };
    let door = match &entrance.owner {
        Owner::Token => None,
        Owner::Listener(id) => match shared.sessions.by_id(id) {
            Some(session) => Some(shared.doors.of(&session)),
            None => {
                let why = format!("this listener belongs to session `{id}`, which there is not");
                return refused(&shared, &caller, Verdict::Denied, why).await;
            }
        },
    };
    let speaking = async {
        match begin(&shared, accepted, &entrance, &mut caller).await {
            Ok((stream, Spoken::Http(version))) => {
                requests::serve(shared.clone(), stream, version, caller).await
            }
            Ok((stream, Spoken::Socks)) => socks::serve(shared.clone(), stream, caller).await,
            Err(End::Gone(error)) => {
                tracing::debug!(%error, "a proxy connection ended before its first request")
            }
            Err(End::Crowded) => {
                let crowds = shared.metrics.path().crowds();
                crowds.refused(Crowd::Strangers, &shown(caller.client));
            }
            Err(End::Refused(verdict, why)) => refused(&shared, &caller, verdict, why).await,
        }
    };
    match door {
        None => speaking.await,
        Some(door) => tokio::select! {
            () = speaking => {}
            () = door.ended() => {}
        },
    }
}

fn shown(client: Option<SocketAddr>) -> String {
    client.map_or_else(|| "no address".to_owned(), |client| client.to_string())
}

/// What is spoken in the end.
enum Spoken {
    Http(Version),
    Socks,
}

/// From the first byte to the protocol.
async fn begin(
    shared: &Shared,
    accepted: Accepted,
    entrance: &Entrance,
    caller: &mut Caller,
) -> Result<(Stream, Spoken), End> {
    let Accepted {
        mut stream,
        peer,
        mut local,
    } = accepted;
    if peer.is_some_and(|peer| balancer::is_one(&entrance.balancers, peer.ip())) {
        let header = balancer::header(&mut stream, shared.limits.first_bytes)
            .await
            .map_err(|no| match no {
                NoHeader::Gone(error) => End::Gone(error),
                NoHeader::Fault(why) => End::Refused(Verdict::Malformed, why),
            })?;
        if let Header::Proxied(ProxyHeader { source, destination }) = header {
            tracing::debug!(balancer = ?peer, client = %source, "a proxy connection came by a load balancer");
            caller.client = Some(source);
            local = Some(destination);
        }
    }
    if let (Owner::Token, Some(client)) = (&caller.owner, caller.client) {
        let place = shared.strangers.admit(client.ip());
        caller.stranger = Some(Arc::new(place.ok_or(End::Crowded)?));
    }
    let mut inside = false;
    loop {
        let began = timeout(shared.limits.first_bytes, first(&mut stream)).await;
        let spoken = match began.map_err(|_| late(&stream))?? {
            Opening::Http1 => Spoken::Http(Version::Http1),
            Opening::Http2 => Spoken::Http(Version::Http2),
            Opening::Socks5 => Spoken::Socks,
            Opening::Tls(hello) if !inside => {
                let (encrypted, proxy) = accept_tls(shared, stream, &hello, (caller, local)).await?;
                stream = encrypted;
                caller.proxy = Some(proxy);
                inside = true;
                continue;
            }
            other => return Err(decline(&mut stream, &other, inside).await),
        };
        return Ok((stream, spoken));
    }
}

/// Waits until it is known what the client speaks.
async fn first(stream: &mut Stream) -> Result<Opening, End> {
    loop {
        match opening(stream.seen()) {
            Opening::Incomplete => {}
            known => return Ok(known),
        }
        if !stream.look_further().await? {
            return Err(late(stream));
        }
    }
}

/// The end of a client that has not said enough.
fn late(stream: &Stream) -> End {
    match stream.seen() {
        [] => End::Gone(io::ErrorKind::UnexpectedEof.into()),
        _ => End::Refused(
            Verdict::Malformed,
            "what came to the proxy is no HTTP and no SOCKS".to_owned(),
        ),
    }
}

/// TLS to the proxy itself, with a leaf for the name that the client asks for, else for the address that it dialled; and that name or
/// address.
async fn accept_tls(
    shared: &Shared,
    stream: Stream,
    hello: &ClientHello,
    (caller, local): (&Caller, Option<SocketAddr>),
) -> Result<(Stream, Host), End> {
    let malformed = |why: String| End::Refused(Verdict::Malformed, format!("TLS to the proxy: {why}"));
    let host = match (&hello.server_name, local) {
        (Some(name), _) => Host::parse(name).map_err(|fault| malformed(fault.to_string()))?,
        (None, Some(local)) => Host::Address(local.ip().to_canonical()),
        (None, None) => Host::Address(IpAddr::from([127, 0, 0, 1])),
    };
    let port = local.map_or(0, |local| local.port());
    let proxy = Destination { host, port };
    // Where a token says whose the connection is, that is not known yet: the current authority vouches.
    let owner = match &caller.owner {
        Owner::Listener(id) => shared.sessions.by_id(id),
        Owner::Token => None,
    };
    let terms = tls::Terms {
        destination: &proxy,
        trusted: owner.as_deref().and_then(Session::authority),
        http1_only: false,
        stranger: owner.is_none(),
        limit: shared.limits.handshake,
    };
    let shaking = tls::accept(&shared.leaves, stream, hello, terms);
    let turn = match &owner {
        Some(session) => turns::Owner::Session(session.id().into()),
        None => strangers::turn(caller.client),
    };
    match shared.turns.take(turn, shaking).await {
        Ok(stream) => Ok((stream, proxy.host)),
        Err(fault) => Err(malformed(fault.to_string())),
    }
}

/// Says why something is not served, in its own words where it has some.
async fn decline(stream: &mut Stream, opening: &Opening, inside: bool) -> End {
    let (why, answer): (_, &[u8]) = match opening {
        Opening::Socks4 => (
            "SOCKS 4 came, which knows no credentials; use SOCKS 5 (`socks5h://`)",
            // "Request rejected or failed", in the form of SOCKS 4.
            &[0, 0x5b, 0, 0, 0, 0, 0, 0],
        ),
        Opening::Tls(_) => ("TLS came inside TLS to the proxy", &[]),
        Opening::ProxyHeader if inside => ("a PROXY header came inside TLS", &[]),
        Opening::ProxyHeader => (
            "a PROXY header came from an address that is no load balancer's; name its network with `--proxy-protocol-from`",
            &[],
        ),
        _ => ("what came to the proxy is no HTTP and no SOCKS", &[]),
    };
    if let Err(error) = stream.write_all(answer).await {
        tracing::debug!(%error, "a client did not hear its refusal");
    }
    End::Refused(Verdict::Malformed, why.to_owned())
}

async fn refused(shared: &Shared, caller: &Caller, verdict: Verdict, why: String) {
    tracing::debug!(client = ?caller.client, why, "a proxy connection was refused");
    let mut ledger = shared.recorder.open(None, None, "connect");
    ledger.came_from(caller.client);
    ledger.verdict(verdict, why);
    ledger.close("refused").await;
}
