//! ONE request through every stage, in order. Read this first.
//!
//! head -> decision -> guard and substitution -> bounds -> upstream -> redaction -> record -> client. Each stage either hands on
//! what the next one demands, or ends the exchange with a `Stop`, which becomes an answer and a record. The handshake of a
//! WebSocket goes the same way; what follows it is told in `websocket.rs`.
use super::before_answer;
use super::client::Client;
use super::deciding::{self, Allowed};
use super::fate::{Cut, RequestFate};
use super::head::{self, HeadFault};
use super::minting;
use super::pace::Pace;
use super::pushed::PushGuard;
use super::refusal::mark_upstream_error;
use super::signing::{self, Signed};
use super::stop::Stop;
use super::track::{AnswerBody, RequestBody};
use super::upgrade::{self, Asked};
use super::upload::Upload;
use super::websocket::extension::Terms;
use super::websocket::handshake::{Begun, Handshake};
use super::websocket::{self, Ground};
use super::{Channel, body, forward, outgoing};
use crate::Shared;
use crate::audit::{AuditError, HELD_BACK};
use crate::ledger::Ledger;
use crate::metrics::path::Phase;
use crate::payload::{Body, Fault};
use crate::secret::SessionSecrets;
use crate::secret::capture::LogIn;
use crate::secret::sigv4::Presented;
use crate::session::quota::Pass;
use crate::telemetry::spans;
use crate::upstream::{Answered, Route, UpstreamFault};
use http::header::EXPECT;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sallyport_policy::Permit;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// A request that may be sent, with the right to do so.
struct Prepared {
    permit: Permit,
    secrets: Arc<SessionSecrets>,
    pass: Arc<Pass>,
    parts: Parts,
    body: Body,
    fate: RequestFate,
}

/// An answer, with what its body needs on its way to the client.
struct Answer {
    response: Response<Incoming>,
    secrets: Arc<SessionSecrets>,
    pass: Arc<Pass>,
    begins: Option<Box<Beginning>>,
    log_ins: Vec<LogIn>,
}

/// What is needed where an answer begins a WebSocket.
struct Beginning {
    handshake: Handshake,
    terms: Option<Terms>,
    permit: Permit,
}

/// Takes one request from head to answer. Always answers; always leaves a record.
pub async fn exchange(shared: &Arc<Shared>, channel: &Channel, request: Request<Incoming>) -> Response<Body> {
    let mut client = Client::of(&request);
    let recorder = &shared.recorder;
    let mut ledger = channel
        .span
        .in_scope(|| recorder.open(Some(&channel.session), Some(&channel.destination), "http"));
    ledger.came_from(channel.client);
    ledger.tls(channel.tls);
    ledger.asked(request.method().as_str(), request.uri().path());
    match attempt(shared, channel, request, (&mut client, &mut ledger)).await {
        Ok(mut answer) => match answer.begins.take() {
            Some(begins) => open((shared, channel), answer, *begins, ledger, &client).await,
            None => release((shared.as_ref(), channel), answer, ledger, &client).await,
        },
        Err(stop) => refuse(stop, channel, ledger, &client).await,
    }
}

async fn attempt(
    shared: &Shared,
    channel: &Channel,
    request: Request<Incoming>,
    (client, ledger): (&mut Client, &mut Ledger),
) -> Result<Answer, Stop> {
    let (mut parts, body) = request.into_parts();
    let mut body = Upload::new(body, &parts, &shared.limits);
    if !shared.recorder.healthy() {
        return Err(Stop::Audit(AuditError(
            "nothing passes until it can be written again".to_owned(),
        )));
    }
    if shared.pseudonym.is_in(&parts.headers) {
        return Err(Stop::Loop);
    }
    let upgrade = upgrade::asked(&mut parts).map_err(Stop::Head)?;
    if let Asked::WebSocket(_) = upgrade {
        ledger.kind("websocket");
    }
    let mut asked = head::read(&parts, &channel.destination, channel.tls).map_err(Stop::Head)?;
    ledger.asked(&asked.method, asked.path.as_str());
    let presented = channel.session.secrets().presented(&parts);
    forward::canonical_fields(&mut parts.headers).map_err(unfit)?;
    asked.headers = head::fields(&parts.headers);
    let asked = deciding::Asked {
        request: asked,
        headers: &parts.headers,
        body: &mut body,
    };
    let allowed = deciding::decide(channel, asked, &shared.limits, (client, ledger)).await?;
    let handshake = match upgrade {
        Asked::Nothing => None,
        Asked::WebSocket(handshake) if body.is_end_stream() => Some(handshake),
        Asked::WebSocket(_) => {
            return Err(Stop::Head(HeadFault::Malformed(
                "a WebSocket handshake has no body".to_owned(),
            )));
        }
        Asked::Other(name) => return Err(Stop::Upgrade(name)),
    };
    let presented = signing::covered(presented, &mut body, &shared.limits).await?;
    let push = allowed.push.clone();
    let log_ins = channel
        .session
        .log_ins(&channel.destination, &allowed.request.path);
    let prepared = prepare(shared, channel, allowed, (parts, body, presented), ledger)?;
    let (secrets, pass) = (prepared.secrets.clone(), prepared.pass.clone());
    let fate = prepared.fate.clone();
    let sent = send(shared, channel, prepared, handshake.as_deref(), ledger).await;
    if let (Some(Cut::Pushed(_)), Some(push)) = (fate.cut(), push) {
        client.pushes(push);
    }
    let (answered, permit) = sent?;
    for note in &answered.notes {
        ledger.remark(note);
    }
    let response = answered.response;
    let begins = match handshake {
        Some(handshake) => match handshake.answered(&response).map_err(broken)? {
            Begun::On(terms) => Some(Box::new(Beginning {
                handshake: *handshake,
                terms,
                permit,
            })),
            Begun::Not => None,
        },
        None => None,
    };
    Ok(Answer {
        response,
        secrets,
        pass,
        begins,
        log_ins,
    })
}

fn broken(what: String) -> Stop {
    Stop::Upstream(UpstreamFault::Malformed(what))
}

fn unfit(error: http::Error) -> Stop {
    Stop::Head(HeadFault::Malformed(format!(
        "the head cannot be sent on: {error}"
    )))
}

/// Gives the head its decided target, guards it and puts credentials in; wraps the body with its guard and its bounds.
fn prepare(
    shared: &Shared,
    channel: &Channel,
    allowed: Allowed,
    (mut parts, body, presented): (Parts, Upload, Option<Presented>),
    ledger: &mut Ledger,
) -> Result<Prepared, Stop> {
    let (request, permit, push) = allowed.parts();
    let pace = parts.extensions.remove::<Arc<Pace>>();
    forward::decided_target(&mut parts, &request).map_err(unfit)?;
    shared
        .pseudonym
        .add_to(&mut parts.headers, parts.version)
        .map_err(unfit)?;
    let secrets = channel.session.secrets();
    let outbound = secrets
        .outbound(&permit, channel.tls, &mut parts)
        .map_err(Stop::Leak)?;
    let guard = match body.is_end_stream() {
        true => None,
        false => {
            let known = (&*outbound.used, shared.limits.unknown_secrets);
            outgoing::guard(&mut parts.headers, &secrets, &permit, known).map_err(Stop::Unread)?
        }
    };
    ledger.used(outbound.used);
    let signed = signing::anew(
        presented,
        (&secrets, &permit, channel.tls),
        &mut parts,
        &shared.limits,
    )?;
    let body = Signed::new(body, signed, ledger);
    if channel.tls
        && let Ok(Some(identity)) = secrets.identity(&permit)
    {
        ledger.used(vec![identity.credential().to_owned()]);
    }
    for note in &outbound.notes {
        ledger.remark(note);
    }
    let begun = channel.session.begin(&permit, body.size_hint().exact());
    let pass = Arc::new(begun.map_err(Stop::Limit)?);
    let limits = &shared.limits;
    let pushed = push.and_then(|_| PushGuard::new(&parts.headers, secrets.clone(), limits.push_inflated));
    let (body, fate) = RequestBody::new(body, guard, ledger.traffic(), limits.request_body_idle);
    let body = body.looking_into(pushed);
    let body = body.within(pass.clone()).guarding_trailers(secrets.clone());
    let (body, open) = match parts.headers.contains_key(EXPECT) {
        true => {
            let (open, opened) = watch::channel(false);
            let body = body.wait_for(opened, limits.expect_continue);
            (body.boxed_unsync(), Some(open))
        }
        false => (body.boxed_unsync(), None),
    };
    if pace.is_some() || open.is_some() {
        before_answer::hand_on(&mut parts, secrets.clone(), open, pace);
    }
    Ok(Prepared {
        permit,
        secrets,
        pass,
        parts,
        body,
        fate,
    })
}

async fn send(
    shared: &Shared,
    channel: &Channel,
    mut prepared: Prepared,
    handshake: Option<&Handshake>,
    ledger: &Ledger,
) -> Result<(Answered, Permit), Stop> {
    let traffic = ledger.traffic();
    let span = spans::upstream(ledger.span());
    let route = Route {
        session: &channel.session,
        permit: &prepared.permit,
        tls: channel.tls,
        traffic: &traffic,
        span: &span,
    };
    let began = Instant::now();
    let sent = match handshake {
        Some(handshake) => {
            handshake.ask(&mut prepared.parts.headers);
            shared.upstream.upgrade(route, prepared.parts, "websocket").await
        }
        None => shared.upstream.send(route, prepared.parts, prepared.body).await,
    };
    drop(span);
    shared.metrics.path().took(Phase::Upstream, began.elapsed());
    match sent {
        Ok(answered)
            if handshake.is_none() && answered.response.status() == StatusCode::SWITCHING_PROTOCOLS =>
        {
            Err(broken("it switched protocols unasked".to_owned()))
        }
        Ok(answered) => Ok((answered, prepared.permit)),
        Err(fault) => Err(match prepared.fate.cut() {
            Some(Cut::Leak(leak) | Cut::Pushed(leak)) => Stop::Leak(leak.clone()),
            Some(Cut::Limit(exceeded)) => Stop::Limit(exceeded.clone()),
            Some(cut @ Cut::Trailer(_)) => Stop::Head(HeadFault::Malformed(cut.to_string())),
            None => Stop::Upstream(fault),
        }),
    }
}

/// Takes secrets out of the answer, makes its record durable where that is due, and lets it through.
async fn release(
    (shared, channel): (&Shared, &Channel),
    Answer {
        response,
        secrets,
        pass,
        log_ins,
        ..
    }: Answer,
    mut ledger: Ledger,
    client: &Client,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Err(exceeded) = pass.announce(body.size_hint().lower()) {
        return refuse(Stop::Limit(exceeded), channel, ledger, client).await;
    }
    forward::strip_answer(&mut parts.headers);
    if let Err(error) = shared.pseudonym.add_to(&mut parts.headers, parts.version) {
        return refuse(unfit(error), channel, ledger, client).await;
    }
    mark_upstream_error(parts.status, &mut parts.headers);
    ledger.status(parts.status);
    let body = body.map_err(Fault::from).boxed_unsync();
    let taken = minting::taken((shared, channel), log_ins, (&parts, body), secrets).await;
    let (secrets, body) = match taken {
        Ok(taken) => taken,
        Err(cannot) => return refuse(Stop::Opaque(cannot), channel, ledger, client).await,
    };
    ledger
        .traffic()
        .redacted(secrets.redact_headers(&mut parts.headers));
    let session = channel.session.clone();
    let latest: body::Secrets = Arc::new(move || session.secrets());
    // What has become secret since the request went out.
    ledger
        .traffic()
        .redacted(latest().redact_headers(&mut parts.headers));
    let body = match body::redacted(body, &mut parts.headers, latest, ledger.traffic()) {
        Ok(body) => body,
        Err(cannot) => return refuse(Stop::Opaque(cannot), channel, ledger, client).await,
    };
    let writes = client.writes();
    if writes && let Err(error) = ledger.write_open().await {
        return refuse(Stop::Audit(error), channel, ledger, client).await;
    }
    let body = AnswerBody::new(body, ledger, pass, writes, shared.limits.body_idle);
    Response::from_parts(parts, body.boxed_unsync())
}

/// The upstream speaks WebSocket from here on. Its record is durable before the client hears of it; its end will be another.
async fn open(
    (shared, channel): (&Arc<Shared>, &Channel),
    answer: Answer,
    begins: Beginning,
    mut ledger: Ledger,
    client: &Client,
) -> Response<Body> {
    let mut response = answer.response;
    let upstream = hyper::upgrade::on(&mut response);
    let mut headers = std::mem::take(response.headers_mut());
    forward::strip_answer(&mut headers);
    if let Err(error) = shared.pseudonym.add_to(&mut headers, response.version()) {
        return refuse(unfit(error), channel, ledger, client).await;
    }
    ledger.status(begins.handshake.status());
    ledger
        .traffic()
        .redacted(answer.secrets.redact_headers(&mut headers));
    if let Err(error) = ledger.write_open().await {
        return refuse(Stop::Audit(error), channel, ledger, client).await;
    }
    let ground = Ground {
        session: channel.session.clone(),
        permit: begins.permit,
        pass: answer.pass,
        shared: shared.clone(),
    };
    let (answer, ends) = begins.handshake.begin(headers, begins.terms, upstream);
    let running = websocket::run(ends, ground, ledger);
    channel.sockets.spawn(shared.tasks.track_future(running));
    answer
}

/// Turns a stop into the answer and the one record of this exchange.
async fn refuse(stop: Stop, channel: &Channel, mut ledger: Ledger, client: &Client) -> Response<Body> {
    let problem = stop.problem(ledger.id(), &channel.destination.host.to_string());
    if let Some((verdict, reason)) = stop.verdict(&problem.detail) {
        ledger.verdict(verdict, reason);
    }
    if let Stop::Limit(exceeded) = &stop {
        ledger.exceeded(exceeded);
    }
    let answer = client.told(&problem);
    ledger.status(answer.status());
    // The upstream may have acted on a write, so its record is durable before anybody hears of the failure.
    match stop {
        Stop::Upstream(_) | Stop::Opaque(_) | Stop::Limit(_) if client.writes() => {
            if let Err(error) = ledger.write_closed("failed").await {
                tracing::error!(%error, "the record of a failed write is not durable");
            }
        }
        Stop::Audit(_) => ledger.close(HELD_BACK).await,
        _ => ledger.close("refused").await,
    }
    answer
}
