//! The explicit forward proxy: CONNECT and absolute-form, HTTP/1.1 and HTTP/2, identity by `Proxy-Authorization`.
use crate::Shared;
use crate::connection;
use crate::control::types::Verdict;
use crate::http::exchange::exchange;
use crate::http::head::{self, HeadFault};
use crate::http::pace::InFlight;
use crate::http::refusal::Problem;
use crate::http::{Channel, PeerFault, Version, serve as serve_http};
use crate::intake::Intake;
use crate::names::doh;
use crate::payload::{Body, empty_body};
use crate::session::Session;
use crate::sniff::{Protocol, sniff};
use crate::stream::Stream;
use ::http::header::{AUTHORIZATION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use sallyport_policy::Destination;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// Pause after a failed accept, so that a shortage of descriptors does not spin.
const BACKOFF: Duration = Duration::from_millis(100);

/// Takes the outcome of one `accept` and serves the connection in the background.
pub async fn accepted(shared: &Arc<Shared>, accepted: io::Result<(TcpStream, SocketAddr)>) {
    match accepted {
        Ok((stream, _)) => {
            let Ok(place) = shared.proxy_places.clone().try_acquire_owned() else {
                tracing::warn!("a proxy connection was refused: there are too many");
                return;
            };
            let shared = shared.clone();
            shared.tasks.clone().spawn(async move {
                serve(shared, stream).await;
                drop(place);
            });
        }
        Err(error) => {
            tracing::warn!(%error, "a proxy connection could not be accepted");
            tokio::time::sleep(BACKOFF).await;
        }
    }
}

async fn serve(shared: Arc<Shared>, socket: TcpStream) {
    if !shared.recorder.healthy() {
        tracing::error!("a proxy connection was refused: the audit log cannot be written");
        return;
    }
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "the connection was gone");
        return;
    }
    let mut stream = Stream::new(socket);
    let version = match timeout(shared.limits.first_bytes, version_of(&mut stream)).await {
        Ok(Ok(Some(version))) => version,
        Ok(Ok(None)) | Err(_) => {
            if stream.seen().is_empty() {
                return;
            }
            let mut ledger = shared.recorder.open(None, None, "connect");
            ledger.verdict(Verdict::Malformed, "what came to the proxy is no HTTP");
            return ledger.close("refused").await;
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a proxy connection broke before its first bytes");
            return;
        }
    };
    let serving = shared.clone();
    let ended = serve_http(
        &shared.limits,
        &shared.draining,
        stream,
        version,
        move |request| answer(serving.clone(), request),
    )
    .await;
    match ended {
        Ok(()) => {}
        Err(fault @ PeerFault::Broken(_)) => tracing::debug!(%fault, "a proxy connection ended"),
        Err(fault) => {
            let mut ledger = shared.recorder.open(None, None, "connect");
            ledger.verdict(Verdict::Malformed, format!("at the proxy: {fault}"));
            ledger.close("refused").await;
        }
    }
}

async fn version_of(stream: &mut Stream) -> io::Result<Option<Version>> {
    loop {
        match sniff(stream.seen()) {
            Protocol::Http => return Ok(Some(Version::Http1)),
            Protocol::Http2Preface => return Ok(Some(Version::Http2)),
            Protocol::Incomplete => {
                if !stream.look_further().await? {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        }
    }
}

/// One request to the proxy itself.
async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let known = owner(&shared, request.headers(), &PROXY_AUTHORIZATION);
    // To the gateway itself, not through it: a client of DNS over HTTPS logs in as at any server.
    let names = doh::is_query(&request) && request.uri().authority().is_none();
    let known = known.or_else(|| {
        names
            .then(|| owner(&shared, request.headers(), &AUTHORIZATION))
            .flatten()
    });
    let Some(session) = known else {
        return unknown(&shared, &request).await;
    };
    if names {
        return doh::answer(&shared, &session, request).await;
    }
    carry(shared, session, request).await
}

/// One request to a proxy by a session that is known.
pub(super) async fn carry(
    shared: Arc<Shared>,
    session: Arc<Session>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let target = match target(&request) {
        Ok(target) => target,
        Err(fault) => return malformed(&shared, &session, &request, fault).await,
    };
    let door = shared.doors.of(&session);
    if request.method() == Method::CONNECT {
        let upgrade = hyper::upgrade::on(&mut request);
        let target = door.meant(target);
        let held = request.extensions_mut().remove::<Arc<InFlight>>();
        let serving = shared.clone();
        shared.tasks.spawn(async move {
            // The connection is in use for as long as the tunnel is.
            let _held = held;
            match upgrade.await {
                Ok(stream) => {
                    let Some(_place) = door.admit() else {
                        tracing::warn!(
                            session = session.id(),
                            "a tunnel was refused: the session has too many"
                        );
                        return;
                    };
                    let stream = Stream::new(TokioIo::new(stream));
                    connection::serve(
                        serving,
                        Intake {
                            session,
                            door: door.clone(),
                            destination: target,
                            stream,
                        },
                    )
                    .await;
                }
                Err(error) => tracing::debug!(%error, "the client left before its tunnel was open"),
            }
        });
        // Also for a refused name: the refusal comes inside, where it can be read.
        return Response::new(empty_body());
    }
    request.headers_mut().remove(PROXY_AUTHORIZATION);
    let channel = Channel {
        session,
        destination: target,
        tls: false,
        sockets: TaskTracker::new(),
    };
    exchange(&shared, &channel, request).await
}

/// Who asks, by `Basic session:password` in this field.
fn owner(shared: &Shared, headers: &HeaderMap, field: &HeaderName) -> Option<Arc<Session>> {
    let mut values = headers.get_all(field).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    shared.sessions.by_proxy_password(user, password)
}

/// Where to. CONNECT names a host and a port (RFC 9110 section 9.3.6); others name an absolute `http` target, with which
/// `Host` must agree.
fn target(request: &Request<Incoming>) -> Result<Destination, HeadFault> {
    let uri = request.uri();
    let malformed = |text: &str| HeadFault::Malformed(text.to_owned());
    let authority = uri.authority().map(|authority| authority.as_str());
    if request.method() == Method::CONNECT {
        if uri.scheme().is_some() || uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(malformed("CONNECT takes a host and a port, nothing else"));
        }
        return head::parse_authority(authority.unwrap_or_default(), None);
    }
    let Some(scheme) = uri.scheme_str() else {
        return Err(malformed(
            "this is a forward proxy: it takes CONNECT and absolute targets like `http://host/path`, not origin-form",
        ));
    };
    match scheme {
        "http" => {}
        "https" => return Err(malformed("an absolute `https` target is not served; use CONNECT")),
        other => {
            let shown: String = other.chars().take(20).collect();
            return Err(HeadFault::Malformed(format!(
                "the scheme `{shown}` is not served; use `http` or CONNECT"
            )));
        }
    }
    let target = head::parse_authority(authority.unwrap_or_default(), Some(80))?;
    if let Some(host) = request.headers().get(HOST) {
        let text = host
            .to_str()
            .map_err(|_| malformed("`Host` holds bytes that are no text"))?;
        if head::parse_authority(text, Some(80))? != target {
            return Err(malformed("the target and `Host` name different hosts"));
        }
    }
    Ok(target)
}

/// The same answer whatever is wrong with the credentials.
async fn unknown(shared: &Shared, request: &Request<Incoming>) -> Response<Body> {
    let mut ledger = shared.recorder.open(None, None, "connect");
    ledger.asked(request.method().as_str(), "");
    ledger.verdict(Verdict::Denied, "the proxy credentials are missing or unknown");
    ledger.status(StatusCode::PROXY_AUTHENTICATION_REQUIRED);
    let problem = Problem {
        status: StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        title: "proxy credentials are missing or unknown",
        detail: "send `Proxy-Authorization: Basic` with the session's id and its proxy token".to_owned(),
        error: "http_request_denied",
        id: ledger.id().to_owned(),
        refusal: None,
        close: false,
        retry_after_s: None,
    };
    ledger.close("refused").await;
    let mut response = problem.respond(request.method(), request.headers());
    response.headers_mut().insert(
        PROXY_AUTHENTICATE,
        HeaderValue::from_static("Basic realm=\"sallyport\""),
    );
    response
}

async fn malformed(
    shared: &Shared,
    session: &Session,
    request: &Request<Incoming>,
    fault: HeadFault,
) -> Response<Body> {
    let mut ledger = shared.recorder.open(Some(session), None, "connect");
    ledger.asked(request.method().as_str(), request.uri().path());
    ledger.verdict(Verdict::Malformed, fault.to_string());
    ledger.status(StatusCode::BAD_REQUEST);
    let problem = Problem {
        status: StatusCode::BAD_REQUEST,
        title: "the request is malformed",
        detail: fault.to_string(),
        error: "http_request_error",
        id: ledger.id().to_owned(),
        refusal: None,
        close: true,
        retry_after_s: None,
    };
    ledger.close("refused").await;
    problem.respond(request.method(), request.headers())
}
