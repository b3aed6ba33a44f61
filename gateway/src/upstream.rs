//! The way out: names to judged addresses, connections, and requests over them. Nothing is dialled without a `Permit`.
mod address;
mod alert;
mod dial;
mod fault;
mod line;
mod parent;
mod pool;
mod settings;
mod speak;
mod spoken;
mod trust;
mod upgrade;
mod verify;

pub use address::authority_text;
pub use dial::Dialled;
pub use fault::UpstreamFault;
pub use line::Line;
pub use parent::{Direct, Parent, ParentSpec};
pub use trust::{Roots, roots, trusting};

use crate::ledger::Traffic;
use crate::limits::Limits;
use crate::metrics::path::{Path, Phase};
use crate::names::resolve::{Known, Resolver};
use crate::payload::{Body, empty_body};
use crate::secret::client_certificate::Identity;
use crate::session::Session;
use crate::telemetry::spans;
use crate::turns::{Owner, Turns};
use address::address_request;
use dial::Dialler;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use pool::{Connection, Key, Pool};
use sallyport_policy::{Destination, Host, Permit};
use speak::{Unsent, first_byte, http1, http2};
use spoken::Spoken;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tracing::Span;
use trust::{Base, Trust};

/// Dials and keeps connections.
#[derive(Debug)]
pub struct Upstream {
    dialler: Dialler,
    spoken: Spoken,
    trust: Trust,
    pool: Arc<Pool>,
    limits: Arc<Limits>,
    counters: Arc<Path>,
    turns: Arc<Turns>,
}

/// How the gateway itself reaches the internet.
#[derive(Debug)]
pub struct Outlet {
    /// Its own look-ups.
    pub resolver: Resolver,
    /// Authorities trusted besides the system's, PEM.
    pub roots_pem: Vec<u8>,
    /// The proxy that it must go through.
    pub parent: Option<Parent>,
}

impl Outlet {
    /// Straight out, trusting the system's authorities.
    pub fn new(resolver: Resolver) -> Self {
        Self {
            resolver,
            roots_pem: Vec::new(),
            parent: None,
        }
    }
}

/// Where one request goes, and by what right.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    /// Whose request it is; connections are never shared between sessions.
    pub session: &'a Session,
    /// The right to send it.
    pub permit: &'a Permit,
    /// Whether it leaves encrypted.
    pub tls: bool,
    /// Counters of its bodies: while they move, nobody is late.
    pub traffic: &'a Traffic,
    /// The span below which dialling has its own.
    pub span: &'a Span,
}

/// An answer, and what happened on the way to it.
#[derive(Debug)]
pub struct Answered {
    /// The answer's head and the body to come.
    pub response: Response<Incoming>,
    /// Things worth a remark in the record.
    pub notes: Vec<String>,
}

impl Upstream {
    /// `own` are this gateway's listeners, never dialled.
    pub fn new(
        outlet: Outlet,
        own: Vec<SocketAddr>,
        (limits, counters, turns): (Arc<Limits>, Arc<Path>, Arc<Turns>),
    ) -> Result<Self, UpstreamFault> {
        let pool = Arc::new(Pool::new(
            limits.pool_idle,
            limits.pool_per_destination,
            counters.clone(),
        ));
        let trust = Trust::new(&outlet.roots_pem)?;
        Ok(Self {
            dialler: Dialler::new((outlet.resolver, outlet.parent), &trust, own, limits.clone())?,
            spoken: Spoken::default(),
            trust,
            pool,
            limits,
            counters,
            turns,
        })
    }

    /// Whether the destination agreed to no HTTP/2 when it was spoken to last for this session, some time ago at most.
    pub fn speaks_http1_only(&self, session: &Session, destination: &Destination) -> bool {
        self.spoken.http2(session, destination) == Some(false)
    }

    /// What the gateway knows of a name that a machine asks for; nothing is asked where the parent proxy looks names up.
    pub async fn known(&self, name: &str) -> Known {
        self.dialler.known(name).await
    }

    /// Closes pooled connections that nobody used for long.
    pub fn sweep(&self) {
        self.pool.sweep();
    }

    /// Trusts the system's authorities, read anew, and these besides, from the next connection on.
    pub fn trust_anew(&self, roots_pem: &[u8]) -> Result<Roots, UpstreamFault> {
        let roots = self.trust.renew(roots_pem)?;
        if roots.changed {
            self.dialler.trust_anew(&self.trust)?;
            self.pool.keep_checked_with(self.trust.now().hash());
        }
        Ok(roots)
    }

    /// Connects to the destination of the permit. The judged address is the dialled one; there is one look-up.
    pub async fn dial(&self, session: &Session, permit: &Permit) -> Result<Dialled, UpstreamFault> {
        self.dialler.dial(session, permit).await
    }

    /// Connects once more to where a connection leads that was dialled under this permit; its address is judged again.
    pub async fn dial_again(
        &self,
        session: &Session,
        permit: &Permit,
        address: Option<SocketAddr>,
    ) -> Result<Dialled, UpstreamFault> {
        self.dialler.dial_again(session, permit, address).await
    }

    /// Makes TLS on a dialled connection, verified for the permit's host; `protocol` is its name in ALPN.
    pub async fn encrypt(
        &self,
        session: &Session,
        permit: &Permit,
        line: Line,
        protocol: &'static [u8],
    ) -> Result<TlsStream<Line>, UpstreamFault> {
        let identity = session.secrets().identity(permit);
        let identity = identity.map_err(UpstreamFault::Identity)?;
        let connector = self.trust.speaking(session, identity.as_deref(), protocol)?;
        let destination = permit.destination();
        let name = trust::server_name(&destination.host)?;
        let limit = self.limits.upstream_handshake;
        self.in_turn(session, timeout(limit, connector.connect(name, line)))
            .await
            .map_err(|_| UpstreamFault::HandshakeTimeout(destination.to_string(), limit))?
            .map_err(|error| UpstreamFault::tls(&error))
    }

    /// Sends one request and waits for its answer's head. Repeats only what certainly did not act upstream.
    pub async fn send(&self, route: Route<'_>, parts: Parts, body: Body) -> Result<Answered, UpstreamFault> {
        let repeat = repeatable(&parts.method, &body).then(|| parts.clone());
        let identity = identity(route)?;
        let base = self.trust.now();
        let key = key(&base, route, identity.as_deref());
        let (mut parts, mut body, mut notes) = (parts, body, Vec::new());
        if let Some(connection) = self
            .pool
            .take(&key, |address| self.still_admitted(route, address))
        {
            self.counters.upstream_connection(true);
            match self.send_on(connection, &key, route, (parts, body)).await {
                Ok(response) => return Ok(Answered { response, notes }),
                Err(Unsent { fault, message }) => match (message, repeat) {
                    (Some((head, rest)), _) => (parts, body) = (head, rest),
                    (None, Some(head)) if fault.is_stale_connection() => {
                        notes.push("repeated: the kept connection had been closed".to_owned());
                        (parts, body) = (head, empty_body());
                    }
                    _ => return Err(fault),
                },
            }
        }
        self.counters.upstream_connection(false);
        let began = Instant::now();
        // Boxed, so that requests on kept connections do not carry the room for a handshake.
        let dialling = spans::dial(route.span);
        let connection = Box::pin(self.open((&key, &base), (route, identity.as_deref()), &mut notes)).await?;
        drop(dialling);
        self.counters.took(Phase::Dial, began.elapsed());
        let sent = self.send_on(connection, &key, route, (parts, body)).await;
        sent.map(|response| Answered { response, notes })
            .map_err(|unsent| unsent.fault)
    }

    /// Handshakes of one session are done in turn with those of the others.
    async fn in_turn<F: Future>(&self, session: &Session, handshake: F) -> F::Output {
        self.turns
            .take(Owner::Session(session.id().into()), handshake)
            .await
    }

    /// Judged anew: a kept connection may rest on a rule of yesterday.
    fn still_admitted(&self, route: Route<'_>, address: Option<SocketAddr>) -> bool {
        let fixed = match &route.permit.destination().host {
            Host::Name(name) => route.session.hosts().get(&**name).copied(),
            Host::Address(_) => None,
        };
        match address {
            Some(address) => {
                self.dialler.admit(route.permit, address).is_ok()
                    && fixed.is_none_or(|fixed| fixed == address.ip())
            }
            None => fixed.is_none(),
        }
    }

    async fn open(
        &self,
        (key, base): (&Key, &Base),
        (route, identity): (Route<'_>, Option<&Identity>),
        notes: &mut Vec<String>,
    ) -> Result<Connection, UpstreamFault> {
        let dialled = self.dial(route.session, route.permit).await?;
        notes.extend(dialled.notes);
        let address = dialled.address;
        if !route.tls {
            return http1(dialled.stream, address, self.counters.upstream_open()).await;
        }
        let connector = self.trust.connector(base, route.session, identity)?;
        let name = trust::server_name(&route.permit.destination().host)?;
        let handshake = timeout(
            self.limits.upstream_handshake,
            connector.connect(name, dialled.stream),
        );
        let stream = self
            .in_turn(route.session, handshake)
            .await
            .map_err(|_| {
                let place =
                    address.map_or_else(|| route.permit.destination().to_string(), |it| it.to_string());
                UpstreamFault::HandshakeTimeout(place, self.limits.upstream_handshake)
            })?
            .map_err(|error| UpstreamFault::tls(&error))?;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.spoken
            .learn(route.session, route.permit.destination(), speaks_http2);
        if !speaks_http2 {
            return http1(stream, address, self.counters.upstream_open()).await;
        }
        let connection = http2(stream, address, self.counters.upstream_open()).await?;
        self.pool.share(key, &connection);
        Ok(connection)
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        key: &Key,
        route: Route<'_>,
        (mut parts, body): (Parts, Body),
    ) -> Result<Response<Incoming>, Unsent> {
        let http2 = matches!(connection, Connection::Http2 { .. });
        if !http2 && is_grpc(&parts) {
            self.pool.give_back(key.clone(), connection);
            return Err(Unsent {
                fault: UpstreamFault::NeedsHttp2,
                message: None,
            });
        }
        address_request(&mut parts, route.permit.destination(), route.tls, http2).map_err(|error| {
            Unsent {
                fault: UpstreamFault::Request(error.to_string()),
                message: None,
            }
        })?;
        let request = Request::from_parts(parts, body);
        let sent = match &mut connection {
            Connection::Http1 { sender, .. } => {
                first_byte(
                    self.limits.upstream_first_byte,
                    route.traffic,
                    sender.try_send_request(request),
                )
                .await
            }
            Connection::Http2 { streams, .. } => {
                first_byte(
                    self.limits.upstream_first_byte,
                    route.traffic,
                    streams.sender.try_send_request(request),
                )
                .await
            }
        };
        match sent {
            Ok(response) => {
                self.pool.give_back(key.clone(), connection);
                Ok(response)
            }
            Err(unsent) => Err(unsent),
        }
    }
}

fn key(base: &Base, route: Route<'_>, identity: Option<&Identity>) -> Key {
    Key {
        session: route.session.id().to_owned(),
        destination: route.permit.destination().clone(),
        tls: route.tls.then(|| base.checked(route.session)),
        identity: identity.map(Identity::version),
    }
}

/// The client certificate to show, where the permit carries one and TLS is spoken.
fn identity(route: Route<'_>) -> Result<Option<Arc<Identity>>, UpstreamFault> {
    if !route.tls {
        return Ok(None);
    }
    let secrets = route.session.secrets();
    secrets.identity(route.permit).map_err(UpstreamFault::Identity)
}

/// gRPC, not its form for browsers, which HTTP/1.1 carries.
fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Safe methods without a body may be sent again when a kept connection turned out dead (RFC 9110 section 9.2.2).
fn repeatable(method: &Method, body: &Body) -> bool {
    method.is_safe() && body.is_end_stream()
}
