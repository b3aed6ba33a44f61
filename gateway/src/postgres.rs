//! PostgreSQL: the agent logs in with a placeholder, the gateway logs in upstream with the real password.
//!
//! opening (TLS, start-up) -> decision -> bounds -> the agent's log-in -> the way out and its log-in -> record -> relay. Each stage
//! either hands on what the next one demands, or ends the connection with a `Stop`, which becomes an error and a record.
use crate::Shared;
use crate::control::types::Verdict;
use crate::intake::{Door, Intake};
use crate::lasting::Hold;
use crate::ledger::Ledger;
use crate::secret::SessionSecrets;
use crate::session::Session;
use crate::session::quota::Pass;
use crate::spoken::Spoken;
use crate::stream::Stream;
use sallyport_policy::{Decision, Destination, Moment, Permit, PostgresRequest, Request};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

mod binding;
mod cancel;
mod entrance;
mod exit;
mod frames;
mod incoming;
mod message;
mod opening;
mod outgoing;
mod relay;
mod scram;
mod stop;
mod turns;
mod wire;

pub use cancel::Cancels;

use exit::Reached;
use message::StartUp;
use opening::{Opened, Unopened, Wish, open};
use relay::{Ended, Relay};
use stop::Stop;

/// PostgreSQL on a connection; whether the client speaks TLS already (PostgreSQL 17's `sslnegotiation=direct`).
#[derive(Debug, Clone, Copy)]
pub struct Postgres {
    /// Whether the start-up message came inside TLS.
    pub tls: bool,
}

/// Where a connection came in.
struct Place {
    shared: Arc<Shared>,
    session: Arc<Session>,
    door: Arc<Door>,
    client: Option<SocketAddr>,
    destination: Destination,
}

/// A log-in that is through on both sides.
struct LoggedIn {
    permit: Permit,
    pass: Pass,
    reached: Reached,
}

impl Spoken for Postgres {
    async fn serve(self, shared: Arc<Shared>, intake: Intake) {
        let Intake {
            session,
            door,
            client,
            destination,
            stream,
        } = intake;
        let place = Place {
            shared,
            session,
            door,
            client,
            destination,
        };
        let limit = place.shared.limits.log_in;
        let opening = timeout(
            limit,
            open(
                &place.shared,
                stream,
                self.tls,
                (&place.session, &place.destination),
            ),
        );
        let opened = tokio::select! {
            opened = opening => opened,
            () = place.door.ended() => return,
        };
        match opened {
            Ok(Ok(Opened {
                client,
                tls,
                wish: Wish::LogIn(start_up),
            })) => place.log_in(client, tls, &start_up).await,
            Ok(Ok(Opened {
                client,
                wish: Wish::Cancel(key),
                ..
            })) => place.cancel(client, &key).await,
            Ok(Err(Unopened { client, stop })) => place.refuse(client, place.ledger(), stop).await,
            Err(_) => place.refuse(None, place.ledger(), Stop::Slow(limit)).await,
        }
    }
}

impl Place {
    fn ledger(&self) -> Ledger {
        let recorder = &self.shared.recorder;
        let mut ledger = recorder.open(Some(&self.session), Some(&self.destination), "postgres");
        ledger.came_from(self.client);
        ledger
    }

    /// One connection from its start-up message to its end.
    async fn log_in(&self, mut client: Stream, tls: bool, start_up: &StartUp) {
        let mut ledger = self.ledger();
        ledger.tls(tls);
        ledger.asked("LOGIN", &path(start_up));
        let attempt = self.attempt(&mut client, start_up, &mut ledger);
        let ended = tokio::select! {
            ended = attempt => ended,
            () = self.door.ended() => Err(Stop::Over(crate::lasting::Over::Session)),
        };
        let logged_in = match ended {
            Ok(logged_in) => logged_in,
            Err(stop) => return self.refuse(Some(client), ledger, stop).await,
        };
        if let Err(error) = ledger.write_open().await {
            tracing::error!(%error, "a database connection was not opened");
            return self.refuse(Some(client), ledger, Stop::Audit).await;
        }
        self.relay(client, logged_in, ledger).await;
    }

    /// Everything before the log-in is let through.
    async fn attempt(
        &self,
        client: &mut Stream,
        start_up: &StartUp,
        ledger: &mut Ledger,
    ) -> Result<LoggedIn, Stop> {
        if !self.shared.recorder.healthy() {
            return Err(Stop::Audit);
        }
        let permit = self.decide(start_up, ledger)?;
        let secrets = self.session.secrets();
        guard(start_up, &secrets)?;
        let pass = self.session.begin(&permit, None)?;
        let limit = self.shared.limits.log_in;
        if let Some(negotiated) = start_up.negotiated() {
            wire::write(client, &negotiated)
                .await
                .map_err(|error| Stop::client(&error))?;
        }
        let role = secrets.role(&permit, &start_up.user).map_err(Stop::Unbound)?;
        let log_ins = secrets.log_ins(&permit);
        let chosen = match log_ins.is_empty() {
            true => None,
            false => {
                let admitting = timeout(limit, entrance::admit(client, log_ins));
                Some(admitting.await.map_err(|_| Stop::Slow(limit))??)
            }
        };
        let dialled = self.shared.upstream.dial(&self.session, &permit).await;
        let dialled = dialled.map_err(Stop::Upstream)?;
        for note in &dialled.notes {
            ledger.remark(note);
        }
        let mut reached = exit::reach(&self.shared, &self.session, &permit, dialled).await?;
        if reached.tls
            && let Ok(Some(identity)) = secrets.identity(&permit)
        {
            ledger.used(vec![identity.credential().to_owned()]);
        } else if !reached.tls {
            ledger.remark("the upstream does not speak TLS; its address is a private one");
        }
        ledger.used(role.iter().map(|role| role.credential.clone()).collect());
        let logging_in = exit::log_in(&mut reached, start_up, (chosen, role.as_ref()), &secrets);
        let late = |_| Stop::Broken(format!("the upstream did not end the log-in within {limit:?}"));
        let used = timeout(limit, logging_in).await.map_err(late)?;
        if let Ok(Some(name)) | Err(Stop::Rejected(_, Some(name))) = &used {
            ledger.used(vec![name.clone()]);
        }
        used.map(|_| LoggedIn {
            permit,
            pass,
            reached,
        })
    }

    /// Asks the policy with role and database.
    fn decide(&self, start_up: &StartUp, ledger: &mut Ledger) -> Result<Permit, Stop> {
        let question = Request {
            destination: self.destination.clone(),
            moment: Moment::Postgres(PostgresRequest {
                database: start_up.database.clone(),
                user: start_up.user.clone(),
            }),
        };
        let decided = self.session.decide(&question);
        ledger.decided(&decided);
        match decided.decision {
            Decision::Allow(permit) => Ok(permit),
            Decision::Ask(refusal) | Decision::Deny(refusal) => Err(Stop::Refused(refusal)),
            // Nothing more will be known: without a yes it is a no.
            Decision::Inspect => Err(Stop::Undecided(self.session.undecided(&question))),
        }
    }

    async fn relay(&self, mut client: Stream, logged_in: LoggedIn, ledger: Ledger) {
        let LoggedIn {
            permit,
            pass,
            reached,
        } = logged_in;
        let traffic = ledger.traffic();
        let hold = Hold {
            door: &self.door,
            session: &self.session,
            permit: &permit,
            traffic: &traffic,
        };
        let relay = Relay {
            shared: &self.shared,
            hold,
            pass: &pass,
        };
        let how = (reached.address, reached.tls);
        let own_key = |key| self.shared.cancels.give(&self.session, &permit, how, key);
        let ended = relay
            .run(&mut client, reached.stream, &entrance::admitted(), own_key)
            .await;
        // Its place is free before anybody can read that it has ended.
        drop(pass);
        match ended {
            Ended::Closed(ending) => {
                ledger.close(&ending).await;
                leave(&mut client, Duration::ZERO).await;
            }
            Ended::Stopped { stop, between } => self.refuse(between.then_some(client), ledger, stop).await,
        }
    }

    /// Tells a client why, where it can be told, and leaves the record.
    async fn refuse(&self, client: Option<Stream>, mut ledger: Ledger, stop: Stop) {
        let host = self.destination.host.to_string();
        if let Some((verdict, reason)) = stop.verdict(&host) {
            ledger.verdict(verdict, reason);
        }
        if let Stop::Limit(exceeded) = &stop {
            ledger.exceeded(exceeded);
        }
        let told = message::error(&stop.told(ledger.id(), &host));
        ledger.close(stop.ending()).await;
        let Some(mut client) = client.filter(|_| !matches!(stop, Stop::Gone)) else {
            return;
        };
        let limit = self.shared.limits.farewell;
        let telling = wire::write(&mut client, &told);
        match timeout(limit, telling).await {
            Ok(Ok(())) => leave(&mut client, limit).await,
            _ => tracing::debug!("a refusal did not reach its client"),
        }
    }

    /// Stops the query of another connection of the same session. The protocol has no answer to this.
    async fn cancel(&self, mut client: Stream, key: &message::Key) {
        let mut ledger = self.ledger();
        ledger.asked("CANCEL", "");
        let ending = match cancel::pass_on(&self.shared, &self.session, &self.destination, key).await {
            Ok(true) => {
                ledger.verdict(
                    Verdict::Allowed,
                    "stops the query of a connection that was let through",
                );
                "complete"
            }
            Ok(false) => {
                ledger.verdict(
                    Verdict::Denied,
                    "no open connection of this session has such a key",
                );
                "refused"
            }
            Err(stop) => {
                let host = self.destination.host.to_string();
                if let Some((verdict, reason)) = stop.verdict(&host) {
                    ledger.verdict(verdict, reason);
                }
                stop.ending()
            }
        };
        ledger.close(ending).await;
        leave(&mut client, Duration::ZERO).await;
    }
}

/// A real value in the start-up message is refused as anywhere.
fn guard(start_up: &StartUp, secrets: &SessionSecrets) -> Result<(), Stop> {
    let Some(mut guard) = secrets.body_guard() else {
        return Ok(());
    };
    let mut seen = bytes::BytesMut::new();
    let guarded = guard.push(&start_up.written(), &mut seen);
    guarded.and_then(|()| guard.finish(&mut seen)).map_err(Stop::Leak)
}

/// What is asked for, as it stands in the record: `/DATABASE/ROLE`, percent-encoded.
fn path(start_up: &StartUp) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    const KEPT: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    let database = utf8_percent_encode(&start_up.database, KEPT);
    format!("/{database}/{}", utf8_percent_encode(&start_up.user, KEPT))
}

/// Closes, and lets the client read what it was told: bytes of it that nobody reads would reset the connection.
async fn leave(client: &mut Stream, limit: Duration) {
    if let Err(error) = client.shutdown().await {
        return tracing::debug!(%error, "the connection was gone");
    }
    let mut rest = [0; 4096];
    let draining = async { while client.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    if timeout(limit, draining).await.is_err() {
        tracing::debug!("the client did not close");
    }
}
