//! HTTP requests to the explicit proxy itself: CONNECT and absolute-form, identity by `Proxy-Authorization`.
use super::caller::Caller;
use crate::Shared;
use crate::connection;
use crate::control::types::Verdict;
use crate::http::exchange::exchange;
use crate::http::head::{self, HeadFault};
use crate::http::pace::InFlight;
use crate::http::refusal::Problem;
use crate::http::{Channel, PeerFault, Version, serve as serve_http};
use crate::intake::Intake;
use crate::metrics::crowds::Crowd;
use crate::names::doh;
use crate::payload::{Body, empty_body};
use crate::session::Session;
use crate::stream::Stream;
use ::http::header::{AUTHORIZATION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;
use sallyport_policy::Destination;
use std::sync::Arc;
use tokio_util::task::TaskTracker;
use tracing::Span;

/// Serves a connection on which HTTP is spoken to the proxy.
pub async fn serve(shared: Arc<Shared>, stream: Stream, version: Version, caller: Caller) {
    let (serving, asking) = (shared.clone(), caller.clone());
    let ended = serve_http(
        &shared.limits,
        &shared.draining,
        stream,
        version,
        move |request| answer(serving.clone(), asking.clone(), request),
    )
    .await;
    match ended {
        Ok(()) => {}
        Err(fault @ PeerFault::Broken(_)) => tracing::debug!(%fault, "a proxy connection ended"),
        Err(fault) => {
            let mut ledger = shared.recorder.open(None, None, "connect");
            ledger.came_from(caller.client);
            ledger.verdict(Verdict::Malformed, format!("at the proxy: {fault}"));
            ledger.close("refused").await;
        }
    }
}

/// One request to the proxy itself.
async fn answer(shared: Arc<Shared>, caller: Caller, request: Request<Incoming>) -> Response<Body> {
    // To the gateway itself, not through it: a client of DNS over HTTPS logs in as at any server.
    let authority = request.uri().authority();
    let names = doh::is_query(&request) && authority.is_none_or(|authority| caller.means_proxy(authority));
    let known = owner(&shared, &caller, request.headers(), &PROXY_AUTHORIZATION);
    let known = known.or_else(|| {
        names
            .then(|| owner(&shared, &caller, request.headers(), &AUTHORIZATION))
            .flatten()
    });
    let Some(session) = known else {
        return unknown(&shared, &caller, &request).await;
    };
    if names {
        return doh::answer(&shared, &session, request).await;
    }
    carry(shared, session, caller, request).await
}

/// One request to a proxy by a session that is known.
pub async fn carry(
    shared: Arc<Shared>,
    session: Arc<Session>,
    caller: Caller,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let target = match target(&request) {
        Ok(target) => target,
        Err(fault) => return malformed(&shared, (&session, &caller), &request, fault).await,
    };
    let door = shared.doors.of(&session);
    if opens_tunnel(&request) {
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
                        let crowds = serving.metrics.path().crowds();
                        crowds.refused(Crowd::Session, &session.id());
                        return;
                    };
                    let stream = Stream::new(TokioIo::new(stream));
                    connection::serve(
                        serving,
                        Intake {
                            session,
                            door: door.clone(),
                            client: caller.client,
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
        client: caller.client,
        destination: target,
        tls: false,
        span: Span::none(),
        sockets: TaskTracker::new(),
    };
    exchange(&shared, &channel, request).await
}

/// Whose the request is, where need be by what the client says in this field.
fn owner(shared: &Shared, caller: &Caller, headers: &HeaderMap, field: &HeaderName) -> Option<Arc<Session>> {
    let said = said(headers, field);
    caller.session(shared, said.as_ref().and_then(|pair| pair.split_once(':')))
}

/// Who the client says it is, `session:password`, by one `Basic` of this field.
fn said(headers: &HeaderMap, field: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(field).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()
}

/// Not extended CONNECT (RFC 8441), which is a request for an absolute target like others.
fn opens_tunnel(request: &Request<Incoming>) -> bool {
    request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_none()
}

/// Where to. CONNECT names a host and a port (RFC 9110 section 9.3.6); others name an absolute `http` target, with which
/// `Host` must agree.
fn target(request: &Request<Incoming>) -> Result<Destination, HeadFault> {
    let uri = request.uri();
    let malformed = |text: &str| HeadFault::Malformed(text.to_owned());
    let authority = uri.authority().map(|authority| authority.as_str());
    if opens_tunnel(request) {
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
async fn unknown(shared: &Shared, caller: &Caller, request: &Request<Incoming>) -> Response<Body> {
    let mut ledger = shared.recorder.open(None, None, "connect");
    ledger.came_from(caller.client);
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
    (session, caller): (&Session, &Caller),
    request: &Request<Incoming>,
    fault: HeadFault,
) -> Response<Body> {
    let mut ledger = shared.recorder.open(Some(session), None, "connect");
    ledger.came_from(caller.client);
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
