//! ONE request through every stage, in order. Read this first.
//!
//! head -> decision -> guard and substitution -> upstream -> redaction -> record -> client. Each stage either hands on
//! what the next one demands, or ends the exchange with a `Stop`, which becomes an answer and a record.
use super::coding::CannotLookInside;
use super::head::{self, HeadFault, destination_text};
use super::refusal::{Problem, refusal_text};
use super::track::{AnswerBody, RequestBody, RequestFate};
use super::{Channel, body, forward};
use crate::Shared;
use crate::audit::AuditError;
use crate::control::types::Verdict;
use crate::ledger::Ledger;
use crate::payload::{Body, Fault};
use crate::secret::{Leak, SessionSecrets};
use crate::upstream::{Answered, Route, UpstreamFault};
use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sallyport_policy::{Decision, HttpRequest, Moment, Permit, Refusal};
use std::sync::Arc;
use tokio::sync::watch;

/// Why an exchange ends before its answer comes from upstream.
enum Stop {
    Head(HeadFault),
    Refused(Refusal, Verdict),
    Undecided,
    Leak(Leak),
    Upgrade,
    Opaque(CannotLookInside),
    Upstream(UpstreamFault),
    Audit(AuditError),
}

/// What was decided on, and the right to send it.
struct Allowed {
    request: HttpRequest,
    permit: Permit,
}

/// A request that may be sent, with the right to do so.
struct Prepared {
    permit: Permit,
    secrets: Arc<SessionSecrets>,
    parts: Parts,
    body: Body,
    fate: RequestFate,
}

/// Takes one request from head to answer. Always answers; always leaves a record.
pub async fn exchange(shared: &Shared, channel: &Channel, request: Request<Incoming>) -> Response<Body> {
    let (method, asked) = (request.method().clone(), request.headers().clone());
    let mut ledger = shared
        .recorder
        .open(Some(&channel.session), Some(&channel.destination), "http");
    ledger.asked(method.as_str(), request.uri().path());
    match attempt(shared, channel, request, &mut ledger).await {
        Ok((response, secrets)) => {
            release((shared, channel), response, &secrets, ledger, (&method, &asked)).await
        }
        Err(stop) => refuse(stop, channel, ledger, (&method, &asked)).await,
    }
}

async fn attempt(
    shared: &Shared,
    channel: &Channel,
    request: Request<Incoming>,
    ledger: &mut Ledger,
) -> Result<(Response<Incoming>, Arc<SessionSecrets>), Stop> {
    let (parts, body) = request.into_parts();
    let asked = head::read(&parts, &channel.destination, channel.tls).map_err(Stop::Head)?;
    ledger.asked(&asked.method, asked.path.as_str());
    let allowed = decide(channel, asked, ledger)?;
    let prepared = prepare(shared, channel, allowed, (parts, body), ledger)?;
    let secrets = prepared.secrets.clone();
    let answered = send(shared, channel, prepared, ledger).await?;
    for note in &answered.notes {
        ledger.remark(note);
    }
    Ok((answered.response, secrets))
}

/// Asks the policy of this moment.
fn decide(channel: &Channel, request: HttpRequest, ledger: &mut Ledger) -> Result<Allowed, Stop> {
    let decided = channel.session.decide(&sallyport_policy::Request {
        destination: channel.destination.clone(),
        moment: Moment::Http(request.clone()),
    });
    ledger.decided(&decided);
    match decided.decision {
        Decision::Allow(permit) => Ok(Allowed { request, permit }),
        Decision::Ask(refusal) => Err(Stop::Refused(refusal, Verdict::Asked)),
        Decision::Deny(refusal) => Err(Stop::Refused(refusal, Verdict::Denied)),
        // Nothing more will be known: without a yes it is a no.
        Decision::Inspect => Err(Stop::Undecided),
    }
}

/// Brings the head into the decided form, guards it and puts credentials in; wraps the body with its guard.
fn prepare(
    shared: &Shared,
    channel: &Channel,
    Allowed { request, permit }: Allowed,
    (mut parts, body): (Parts, Incoming),
    ledger: &mut Ledger,
) -> Result<Prepared, Stop> {
    if is_upgrade(&parts.headers) {
        return Err(Stop::Upgrade);
    }
    forward::canonical_request(&mut parts, &request).map_err(|error| {
        Stop::Head(HeadFault::Malformed(format!(
            "the target cannot be sent on: {error}"
        )))
    })?;
    let secrets = channel.session.secrets();
    let outbound = secrets
        .outbound(&permit, channel.tls, &mut parts)
        .map_err(Stop::Leak)?;
    ledger.used(outbound.used);
    for note in &outbound.notes {
        ledger.remark(note);
    }
    let limits = &shared.limits;
    let guard = body::outgoing_guard(&parts.headers, &secrets);
    let (body, fate) = RequestBody::new(body, guard, ledger.traffic(), limits.request_body_idle);
    let body = match parts.headers.contains_key(EXPECT) {
        true => {
            let (open, opened) = watch::channel(false);
            expect_word(&mut parts, open);
            body.wait_for(opened, limits.expect_continue).boxed_unsync()
        }
        false => body.boxed_unsync(),
    };
    Ok(Prepared {
        permit,
        secrets,
        parts,
        body,
        fate,
    })
}

/// Opens the body's gate when the upstream says `100 Continue`.
fn expect_word(parts: &mut Parts, open: watch::Sender<bool>) {
    let mut carrier = Request::new(());
    hyper::ext::on_informational(&mut carrier, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            open.send_replace(true);
        }
    });
    parts.extensions.extend(std::mem::take(carrier.extensions_mut()));
}

async fn send(
    shared: &Shared,
    channel: &Channel,
    prepared: Prepared,
    ledger: &Ledger,
) -> Result<Answered, Stop> {
    let traffic = ledger.traffic();
    let route = Route {
        session: &channel.session,
        permit: &prepared.permit,
        tls: channel.tls,
        traffic: &traffic,
    };
    match shared.upstream.send(route, prepared.parts, prepared.body).await {
        Ok(answered) if answered.response.status() == StatusCode::SWITCHING_PROTOCOLS => Err(Stop::Upstream(
            UpstreamFault::Malformed("it switched protocols unasked".to_owned()),
        )),
        Ok(answered) => Ok(answered),
        Err(fault) => Err(match prepared.fate.leak() {
            Some(leak) => Stop::Leak(leak.clone()),
            None => Stop::Upstream(fault),
        }),
    }
}

/// Takes secrets out of the answer, makes its record durable where that is due, and lets it through.
async fn release(
    (shared, channel): (&Shared, &Channel),
    response: Response<Incoming>,
    secrets: &Arc<SessionSecrets>,
    mut ledger: Ledger,
    (method, asked): (&Method, &HeaderMap),
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    forward::strip_answer(&mut parts.headers);
    ledger.status(parts.status);
    ledger
        .traffic()
        .redacted(secrets.redact_headers(&mut parts.headers));
    let body = body.map_err(Fault::from).boxed_unsync();
    let body = match body::redacted(body, &mut parts.headers, secrets, ledger.traffic()) {
        Ok(body) => body,
        Err(cannot) => return refuse(Stop::Opaque(cannot), channel, ledger, (method, asked)).await,
    };
    let writes = matches!(
        *method,
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    );
    if writes && let Err(error) = ledger.write_open().await {
        return refuse_audit(error, ledger, method, asked).await;
    }
    let body = AnswerBody::new(body, ledger, writes, shared.limits.body_idle);
    Response::from_parts(parts, body.boxed_unsync())
}

async fn refuse_audit(
    error: AuditError,
    ledger: Ledger,
    method: &Method,
    asked: &HeaderMap,
) -> Response<Body> {
    let problem = problem(&Stop::Audit(error), ledger.id(), "");
    ledger.close("held back: the audit log cannot be written").await;
    problem.respond(method, asked)
}

/// Turns a stop into the answer and the one record of this exchange.
async fn refuse(
    stop: Stop,
    channel: &Channel,
    mut ledger: Ledger,
    (method, asked): (&Method, &HeaderMap),
) -> Response<Body> {
    let host = channel.destination.host.to_string();
    let problem = problem(&stop, ledger.id(), &host);
    match &stop {
        Stop::Refused(..) => {}
        Stop::Head(fault) => ledger.verdict(Verdict::Malformed, fault.to_string()),
        Stop::Undecided => ledger.verdict(Verdict::Denied, problem.detail.clone()),
        Stop::Leak(leak) => ledger.verdict(Verdict::Denied, leak.sentence.clone()),
        Stop::Upgrade | Stop::Opaque(_) => ledger.verdict(Verdict::Denied, problem.detail.clone()),
        Stop::Upstream(fault @ UpstreamFault::Address(_)) => ledger.verdict(
            Verdict::Denied,
            format!(
                "{} leads to a forbidden address: {fault}",
                destination_text(&channel.destination)
            ),
        ),
        Stop::Upstream(UpstreamFault::RequestBody(why)) => {
            ledger.verdict(Verdict::Malformed, format!("the request's body broke off: {why}"));
        }
        Stop::Upstream(fault) => ledger.verdict(Verdict::UpstreamFailed, fault.to_string()),
        Stop::Audit(_) => {}
    }
    ledger.status(problem.status);
    ledger.close("refused").await;
    problem.respond(method, asked)
}

fn problem(stop: &Stop, id: &str, host: &str) -> Problem {
    let of = |status, title, error, detail: String| Problem {
        status,
        title,
        detail,
        error,
        id: id.to_owned(),
        refusal: None,
        close: false,
    };
    match stop {
        Stop::Head(fault) => Problem {
            close: true,
            ..of(fault.status(), "the request is malformed", "http_request_error", fault.to_string())
        },
        Stop::Refused(refusal, verdict) => {
            let title = if *verdict == Verdict::Asked { "a person must allow this" } else { "refused by policy" };
            Problem {
                refusal: Some(refusal.clone()),
                ..of(StatusCode::FORBIDDEN, title, "http_request_denied", refusal_text(refusal, host))
            }
        }
        Stop::Undecided => of(
            StatusCode::FORBIDDEN,
            "refused by policy",
            "http_request_denied",
            "the policy gave no answer to the whole request, so it is refused".to_owned(),
        ),
        Stop::Leak(leak) => {
            of(StatusCode::FORBIDDEN, "a credential must not go there", "http_request_denied", leak.sentence.clone())
        }
        Stop::Upgrade => of(
            StatusCode::NOT_IMPLEMENTED,
            "upgrades are not supported",
            "http_upgrade_failed",
            "this gateway cannot read what would follow the upgrade (WebSocket or another protocol), so it does not let it \
             through; use plain HTTP requests or server-sent events"
                .to_owned(),
        ),
        Stop::Opaque(cannot) => of(
            StatusCode::BAD_GATEWAY,
            "the answer cannot be looked into",
            "http_response_content_coding",
            format!(
                "{cannot}; this session has credentials that must be taken out of answers; ask with `Accept-Encoding: gzip` \
                 and without `Range`"
            ),
        ),
        Stop::Upstream(UpstreamFault::Address(why)) => of(
            StatusCode::FORBIDDEN,
            "the address is forbidden",
            "destination_ip_prohibited",
            format!("`{host}` leads to no address that may be dialled: {why}"),
        ),
        Stop::Upstream(fault) => {
            of(fault.status(), "the upstream did not answer", fault.error(), format!("`{host}`: {fault}"))
        }
        Stop::Audit(error) => of(
            StatusCode::SERVICE_UNAVAILABLE,
            "the audit log cannot be written",
            "proxy_internal_error",
            format!("{error}; the upstream may have acted on the request, and its answer is held back"),
        ),
    }
}

/// `h2c` offers are left aside, which RFC 9110 section 7.8 allows; others are asked for in earnest.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let earnest = |value: &http::HeaderValue| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"h2c");
    headers.get_all(http::header::UPGRADE).iter().any(earnest)
}
