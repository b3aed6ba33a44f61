//! A WebSocket between a machine and an upstream, from the answered handshake to its last frame: both ways at once, counted,
//! recorded, and closed in its own words.
pub mod deflate;
pub mod extension;
pub mod frame;
pub mod handshake;
pub mod relay;
pub mod sight;
mod way;

use crate::Shared;
use crate::control::types::Verdict;
use crate::lasting::{self, Hold, Over};
use crate::ledger::Ledger;
use crate::session::Session;
use crate::session::exceeded::Exceeded;
use crate::session::quota::Pass;
use crate::tunnel::Counted;
use extension::Terms;
use frame::{Side, Violation};
use handshake::Ends;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use relay::Relay;
use sallyport_policy::Permit;
use sight::Sight;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tungstenite::protocol::frame::coding::CloseCode;
use way::{Outcome, Way, linger};

/// What a WebSocket rests on while it is open.
pub struct Ground {
    /// Whose it is.
    pub session: Arc<Session>,
    /// The right to it.
    pub permit: Permit,
    /// Its place within its rules' bounds.
    pub pass: Arc<Pass>,
    /// The gateway.
    pub shared: Arc<Shared>,
}

/// How a WebSocket ended.
enum Ending {
    /// Both sides said good-bye.
    Closed,
    /// One side is gone, which needs no words of ours.
    Broken(String),
    /// What it rests on is over.
    Over(Over),
    /// The gateway ends it, since something was in it that must not be.
    Refused(Violation),
    /// More than a rule lets pass.
    Exceeded(Exceeded),
}

/// Carries messages both ways until one side closes, or something ends the WebSocket. Its end is the ledger's second record.
pub async fn run(ends: Ends, ground: Ground, mut ledger: Ledger) {
    let Ends {
        client,
        upstream,
        terms,
        held,
    } = ends;
    let shared = ground.shared.clone();
    let limit = shared.limits.websocket_close;
    let joined = timeout(shared.limits.handshake, async {
        tokio::try_join!(client, upstream)
    });
    let (client, upstream) = match joined.await {
        Ok(Ok(both)) => both,
        Ok(Err(error)) => return ledger.close(&format!("incomplete: {error}")).await,
        Err(_) => {
            return ledger
                .close("incomplete: the client did not take the answer")
                .await;
        }
    };
    let (mut outward, mut inward) = ways(client, upstream, terms, &ground, &ledger);
    let traffic = ledger.traffic();
    let door = shared.doors.of(&ground.session);
    let hold = Hold {
        door: &door,
        session: &ground.session,
        permit: &ground.permit,
        traffic: &traffic,
    };
    let ending = tokio::select! {
        biased;
        over = lasting::over(&shared, hold, shared.limits.tunnel_idle) => Ending::Over(over),
        ending = carry(&mut outward, &mut inward, limit) => ending,
    };
    let text = farewell(&ending, &mut outward, &mut inward, (&mut ledger, limit)).await;
    // Its place is free before anybody can read that it has ended.
    let client = outward.into_source();
    drop((inward, ground));
    ledger.close(&text).await;
    match ending {
        Ending::Closed | Ending::Broken(_) => {}
        Ending::Over(_) | Ending::Refused(_) | Ending::Exceeded(_) => linger(client, limit).await,
    }
    drop(held);
}

type Client = TokioIo<Upgraded>;
type Upstream = Counted<TokioIo<Upgraded>>;
type Outward = Way<Client, Upstream>;
type Inward = Way<Upstream, Client>;

fn ways(
    client: Upgraded,
    upstream: Upgraded,
    terms: Option<Terms>,
    ground: &Ground,
    ledger: &Ledger,
) -> (Outward, Inward) {
    let traffic = ledger.traffic();
    let relay = |from, coding| {
        let session = ground.session.clone();
        let terms = (ground.permit.clone(), ground.shared.limits.unknown_secrets);
        let sight = Sight::new(Box::new(move || session.secrets()), from, terms, traffic.clone());
        Relay::new(from, coding, sight, ground.shared.limits.websocket_message)
    };
    let upstream = Counted::new(TokioIo::new(upstream), traffic.clone(), ground.pass.clone());
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_upstream, to_upstream) = tokio::io::split(upstream);
    let outward = relay(Side::Client, terms.map(|terms| terms.client()));
    let inward = relay(Side::Upstream, terms.map(|terms| terms.server()));
    (
        Way::new(from_client, to_upstream, outward),
        Way::new(from_upstream, to_client, inward),
    )
}

/// Both ways at once. Once one side has closed, the other has `limit` to do so too.
async fn carry(outward: &mut Outward, inward: &mut Inward, limit: Duration) -> Ending {
    let first = tokio::select! {
        over = outward.carry() => (Side::Client, over),
        over = inward.carry() => (Side::Upstream, over),
    };
    match first {
        (side, Outcome::Closed) => {
            let second = match side {
                Side::Client => timeout(limit, inward.carry()).await,
                Side::Upstream => timeout(limit, outward.carry()).await,
            };
            match second {
                Ok(Outcome::Closed | Outcome::Gone) => Ending::Closed,
                Ok(over) => ended(over, other(side)),
                Err(_) => Ending::Broken(format!(
                    "incomplete: the {} did not answer the close",
                    name(other(side))
                )),
            }
        }
        (side, over) => ended(over, side),
    }
}

fn ended(outcome: Outcome, side: Side) -> Ending {
    match outcome {
        Outcome::Closed => Ending::Closed,
        Outcome::Gone => Ending::Broken(format!(
            "incomplete: the {} left without a close frame",
            name(side)
        )),
        Outcome::Refused(violation) => Ending::Refused(violation),
        Outcome::Failed(error) => match exceeded(&error) {
            Some(exceeded) => Ending::Exceeded(exceeded.clone()),
            None => Ending::Broken(format!("incomplete: {error}")),
        },
    }
}

fn exceeded(error: &io::Error) -> Option<&Exceeded> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Upstream => "upstream",
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Upstream,
        Side::Upstream => Side::Client,
    }
}

/// Tells both sides where the gateway ends it, and the record how it ended.
async fn farewell(
    ending: &Ending,
    outward: &mut Outward,
    inward: &mut Inward,
    (ledger, limit): (&mut Ledger, Duration),
) -> String {
    let (code, sentence, text) = match ending {
        Ending::Closed => {
            outward.end(limit).await;
            inward.end(limit).await;
            return "complete".to_owned();
        }
        Ending::Broken(text) => return text.clone(),
        Ending::Over(over) => {
            let code = match over {
                Over::Grant => CloseCode::Policy,
                Over::Session | Over::Stopping | Over::Idle => CloseCode::Away,
            };
            (code, over.ending().to_owned(), over.ending().to_owned())
        }
        Ending::Refused(violation) => {
            let verdict = match violation.code {
                CloseCode::Policy => Verdict::Denied,
                _ => Verdict::Malformed,
            };
            ledger.verdict(verdict, &*violation.sentence);
            (violation.code, violation.sentence.clone(), "refused".to_owned())
        }
        Ending::Exceeded(exceeded) => {
            ledger.exceeded(exceeded);
            (
                CloseCode::Policy,
                exceeded.sentence.clone(),
                format!("incomplete: {exceeded}"),
            )
        }
    };
    let reason = format!("sallyport decision {}: {sentence}", ledger.id());
    // The upstream need not know of the policy.
    let telling = async { tokio::join!(outward.close(code, ""), inward.close(code, &reason)) };
    let (to_upstream, to_client) = match timeout(limit, telling).await {
        Ok(told) => told,
        Err(_) => (Ok(()), Err(io::Error::from(io::ErrorKind::TimedOut))),
    };
    for told in [to_upstream, to_client] {
        if let Err(error) = told {
            tracing::debug!(%error, "a WebSocket's last words did not reach one side");
        }
    }
    text
}
