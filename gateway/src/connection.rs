//! ONE connection from its first bytes to what is served on it: decide, look, intercept, decide again.
//!
//! Every way in ends here as an `Intake`. A name that is refused at connect is accepted all the same where the client
//! speaks TLS or HTTP, so that the refusal can be read; nothing is sent upstream for it.
use crate::Shared;
use crate::control::types::Verdict;
use crate::farewell;
use crate::http::{Channel, PeerFault, Version, serve_channel};
use crate::intake::Intake;
use crate::ledger::Ledger;
use crate::postgres::Postgres;
use crate::session::Decided;
use crate::sniff::{LOOK_BYTES, Protocol, sniff};
use crate::spoken::Spoken;
use crate::ssh::Ssh;
use crate::stream::Stream;
use crate::telemetry::spans;
use crate::tls::{self, HandshakeFault};
use crate::tunnel;
use sallyport_policy::{self as rules, Decision, Moment, Permit, Request};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

/// How looking at the first bytes ended without a protocol.
enum Look {
    Found(Protocol),
    /// The client closed; whether it had sent anything.
    Closed {
        sent: bool,
    },
    Slow {
        sent: bool,
    },
    Failed(io::Error),
}

/// Takes a connection through its stages. Returns when it is over; everything refused here has left a record.
pub async fn serve(shared: Arc<Shared>, intake: Intake) {
    let _open = shared.metrics.path().connection();
    let span = spans::connection(intake.session.id(), &intake.destination);
    // Boxed, so that it is not moved whole.
    Box::pin(stages(shared, intake, &span))
        .instrument(span.clone())
        .await;
}

async fn stages(shared: Arc<Shared>, intake: Intake, span: &Span) {
    let decided = decide(&intake, Moment::Connect);
    spans::decided(span, &decided.id);
    if let Decision::Allow(permit) = &decided.decision {
        return match permit.protocol() {
            rules::Protocol::Tls => pass_tls(&shared, intake, permit, &decided).await,
            _ => opaque(&shared, intake, "nothing yet").await,
        };
    }
    let mut intake = intake;
    match look(&mut intake.stream, shared.limits.first_bytes).await {
        Look::Found(Protocol::Tls(hello)) => {
            let Intake {
                session,
                door,
                client,
                destination,
                stream,
            } = intake;
            let terms = tls::Terms {
                destination: &destination,
                trusted: session.authority(),
                http1_only: shared.upstream.speaks_http1_only(&session, &destination),
                stranger: false,
                limit: shared.limits.handshake,
            };
            // Boxed, so that what is served afterwards does not carry the room for a handshake.
            let shaken = Box::pin(door.shake_hands(
                shared.limits.handshake,
                tls::accept(&shared.leaves, stream, &hello, terms),
            ))
            .await;
            match shaken.unwrap_or(Err(HandshakeFault::Crowded(shared.limits.handshakes))) {
                Ok(stream) => {
                    inside_tls(
                        shared,
                        Intake {
                            session,
                            door,
                            client,
                            destination,
                            stream,
                        },
                        decided,
                    )
                    .await
                }
                Err(fault) => {
                    let mut ledger = shared
                        .recorder
                        .open(Some(&session), Some(&destination), "handshake");
                    ledger.came_from(client);
                    ledger.verdict(Verdict::Malformed, fault.to_string());
                    ledger.close("refused").await;
                }
            }
        }
        Look::Found(Protocol::Http) => http(shared, intake, Version::Http1, false).await,
        Look::Found(Protocol::Http2Preface) => http(shared, intake, Version::Http2, false).await,
        Look::Found(Protocol::Ssh) => ssh(shared, intake, decided).await,
        Look::Found(Protocol::Postgres) => spoken(shared, intake, Postgres { tls: false }).await,
        Look::Found(Protocol::Unknown(what)) => opaque(&shared, intake, what).await,
        Look::Found(Protocol::Incomplete) | Look::Slow { .. } => {
            opaque(&shared, intake, "nothing, or not enough").await
        }
        Look::Closed { sent } => closed_early(&shared, intake, &decided, sent).await,
        Look::Failed(error) => tracing::debug!(%error, "a connection broke before its first bytes"),
    }
}

/// TLS for the dialled name, which a rule lets through unread (`protocol: tls`).
async fn pass_tls(shared: &Shared, mut intake: Intake, permit: &Permit, decided: &Decided) {
    let mut ledger = open(shared, &intake, "tls");
    ledger.decided(decided);
    let fault = match look(&mut intake.stream, shared.limits.first_bytes).await {
        Look::Found(Protocol::Tls(hello)) => tls::check_name(&hello, &intake.destination.host)
            .map_err(|fault| fault.to_string())
            .and_then(|()| tls::check_open(&hello).map_err(str::to_owned))
            .err(),
        _ => Some("the rule lets TLS through, and something else came".to_owned()),
    };
    if let Some(fault) = fault {
        ledger.verdict(Verdict::Denied, fault);
        return ledger.close("refused").await;
    }
    tunnel::run(shared, intake, permit, ledger).await;
}

/// Looks into the decrypted stream: HTTP is served, nothing else.
async fn inside_tls(shared: Arc<Shared>, mut intake: Intake, connect: Decided) {
    // A client may open a connection ahead of its need: the idle limit holds, not the one for first bytes.
    match look(&mut intake.stream, shared.limits.idle).await {
        Look::Found(Protocol::Http) => http(shared, intake, Version::Http1, true).await,
        Look::Found(Protocol::Http2Preface) => http(shared, intake, Version::Http2, true).await,
        Look::Found(Protocol::Postgres) => Postgres { tls: true }.serve(shared, intake).await,
        Look::Found(_) => {
            let mut ledger = open(&shared, &intake, "handshake");
            ledger.decided(&connect);
            ledger.verdict(
                Verdict::Denied,
                "inside TLS came something else than HTTP; such a protocol is not read here",
            );
            ledger.close("refused").await;
        }
        Look::Closed { sent } | Look::Slow { sent } => closed_early(&shared, intake, &connect, sent).await,
        Look::Failed(error) => {
            let mut ledger = open(&shared, &intake, "handshake");
            ledger.verdict(
                Verdict::Malformed,
                format!("the client ended TLS: {error}; does it trust the gateway's authority?"),
            );
            ledger.close("broken off").await;
        }
    }
}

/// A protocol that is ended here, unless the connection may pass unread: by a rule, or since the policy only observes, and then
/// no credential could be put in anyway.
async fn spoken(shared: Arc<Shared>, intake: Intake, protocol: impl Spoken) {
    let unread = decide(&intake, Moment::Opaque);
    match &unread.decision {
        Decision::Allow(permit) => {
            let mut ledger = open(&shared, &intake, "tcp");
            ledger.decided(&unread);
            tunnel::run(&shared, intake, permit, ledger).await;
        }
        _ => protocol.serve(shared, intake).await,
    }
}

async fn http(shared: Arc<Shared>, intake: Intake, version: Version, tls: bool) {
    let Intake {
        session,
        door,
        client,
        destination,
        stream,
    } = intake;
    let channel = Arc::new(Channel {
        session,
        client,
        destination,
        tls,
        span: Span::current(),
        sockets: TaskTracker::new(),
    });
    let serving = serve_channel(shared.clone(), stream, version, channel.clone());
    let ended = tokio::select! {
        ended = serving => ended,
        () = door.ended() => Ok(()),
    };
    // They end by themselves with their session; what they run over is in use until then.
    channel.sockets.close();
    channel.sockets.wait().await;
    match ended {
        Ok(()) => {}
        Err(fault @ PeerFault::Broken(_)) => tracing::debug!(%fault, "a connection from a machine ended"),
        Err(fault) => {
            let mut ledger = shared
                .recorder
                .open(Some(&channel.session), Some(&channel.destination), "http");
            ledger.came_from(channel.client);
            ledger.verdict(Verdict::Malformed, fault.to_string());
            ledger.close("refused").await;
        }
    }
}

/// SSH is ended here where some rule may allow it; what is refused already is told before any key is exchanged.
async fn ssh(shared: Arc<Shared>, intake: Intake, connect: Decided) {
    if matches!(connect.decision, Decision::Inspect) {
        return spoken(shared, intake, Ssh { connect }).await;
    }
    let decided = decide(&intake, Moment::Opaque);
    unread(&shared, intake, ("ssh", "ssh"), decided).await;
}

/// Bytes that are not, or cannot be, read as HTTP or TLS: a tunnel where a rule says so, else refused and explained.
async fn opaque(shared: &Shared, intake: Intake, what: &str) {
    let decided = decide(&intake, Moment::Opaque);
    unread(shared, intake, (what, "tcp"), decided).await;
}

/// Bytes of which it is decided whether they pass unread; `protocol` is what a rule would need for them.
async fn unread(shared: &Shared, mut intake: Intake, (what, protocol): (&str, &str), decided: Decided) {
    let mut ledger = open(shared, &intake, "tcp");
    ledger.decided(&decided);
    if let Decision::Allow(permit) = &decided.decision {
        return tunnel::run(shared, intake, permit, ledger).await;
    }
    let unread = format!("the client sent {what}: only a rule with `protocol: {protocol}` lets that pass");
    ledger.remark(&unread);
    let host = intake.destination.host.to_string();
    let text = match &decided.decision {
        Decision::Deny(refusal) | Decision::Ask(refusal) if refusal.reason.rule == "default" => {
            format!("{}; {unread}", refusal.told(&host))
        }
        Decision::Deny(refusal) | Decision::Ask(refusal) => refusal.told(&host),
        _ => unread,
    };
    farewell::tell(&mut intake.stream, &text, &decided.id, shared.limits.first_bytes).await;
    ledger.close("refused").await;
}

/// A connection on which nothing was asked: recorded where the name itself is refused.
async fn closed_early(shared: &Shared, intake: Intake, decided: &Decided, sent: bool) {
    if !sent && !matches!(decided.decision, Decision::Deny(_) | Decision::Ask(_)) {
        return;
    }
    let mut ledger = open(shared, &intake, "connect");
    ledger.decided(decided);
    if sent {
        ledger.verdict(
            Verdict::Malformed,
            "the client left in the middle of its first bytes",
        );
    }
    ledger.close("the client went away").await;
}

async fn look(stream: &mut Stream, limit: Duration) -> Look {
    let deadline = Instant::now() + limit;
    loop {
        let sent = !stream.seen().is_empty();
        match sniff(stream.seen()) {
            Protocol::Incomplete if stream.seen().len() >= LOOK_BYTES => {
                return Look::Found(Protocol::Unknown("a beginning that does not end"));
            }
            Protocol::Incomplete => {}
            found => return Look::Found(found),
        }
        match timeout_at(deadline, stream.look_further()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Look::Closed { sent },
            Ok(Err(error)) => return Look::Failed(error),
            Err(_) => return Look::Slow { sent },
        }
    }
}

fn decide(intake: &Intake, moment: Moment) -> Decided {
    intake.session.decide(&Request {
        destination: intake.destination.clone(),
        moment,
    })
}

fn open(shared: &Shared, intake: &Intake, kind: &'static str) -> Ledger {
    let mut ledger = shared
        .recorder
        .open(Some(&intake.session), Some(&intake.destination), kind);
    ledger.came_from(intake.client);
    ledger
}
