//! SSH ended at the gateway: the agent logs in here, each command is decided, and the gateway logs in upstream for it.
//!
//! `agent` is the server that the agent speaks with, `means` says what it may log in with, `exchange` takes one command
//! through its stages, `upstream` is the client that speaks with the real host, `flow` carries the bytes between the two.
mod agent;
mod asked;
mod cut;
mod exchange;
mod flow;
mod host;
pub mod host_key;
mod known;
mod link;
mod means;
mod push;
mod queue;
mod sides;
mod stop;
mod turn;
mod upstream;
mod watch;

use crate::Shared;
use crate::control::types::Verdict;
use crate::intake::Intake;
use crate::session::Decided;
use crate::spoken::Spoken;
use crate::turns::Owner;
use agent::Agent;
use cut::Cuttable;
use link::Link;
use russh::Disconnect;
use russh::server::{Config, RunningSession, run_stream};
use std::sync::Arc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use turn::Paced;

/// One ssh connection of an agent, of which connecting was decided.
#[derive(Debug)]
pub struct Ssh {
    /// That decision; nothing rests on it but what is told where no command comes.
    pub connect: Decided,
}

impl Spoken for Ssh {
    async fn serve(self, shared: Arc<Shared>, intake: Intake) {
        let Intake {
            session,
            door,
            client,
            destination,
            stream,
        } = intake;
        let config = Arc::new(config(&shared));
        let owner = Owner::Session(session.id().into());
        let (stream, entered) = Paced::new(stream, shared.turns.clone(), owner);
        let link = Arc::new(Link::new(shared, session, door, (client, destination), entered));
        let cut = CancellationToken::new();
        let stream = Cuttable::new(stream, cut.clone());
        let agent = Agent::new(link.clone(), config.max_auth_attempts);
        let handshake = run_stream(config, stream, agent);
        let ending = match timeout(link.shared.limits.handshake, handshake).await {
            Ok(Ok(running)) => attend(&link, running).await,
            Ok(Err(error)) => format!("the handshake failed: {error}"),
            Err(_) => "the client was too slow with its first words".to_owned(),
        };
        // Whatever still reads or writes ends now.
        cut.cancel();
        if !link.was_asked() {
            nothing_asked(&link, &self.connect, &ending).await;
        }
    }
}

fn config(shared: &Shared) -> Config {
    let limits = &shared.limits;
    Config {
        server_id: russh::SshId::Standard("SSH-2.0-sallyport".into()),
        keys: vec![shared.ssh_host_key.key().clone()],
        max_auth_attempts: limits.ssh_tries,
        auth_rejection_time: limits.ssh_rejection,
        auth_rejection_time_initial: Some(std::time::Duration::ZERO),
        inactivity_timeout: Some(limits.tunnel_idle),
        ..Config::default()
    }
}

/// Waits for the connection's end, and ends it where its time is over.
async fn attend(link: &Link, mut running: RunningSession<Agent>) -> String {
    let handle = running.handle();
    let ending = tokio::select! {
        ended = &mut running => return match ended {
            Ok(()) => "the client left".to_owned(),
            Err(error) => format!("the connection broke: {error}"),
        },
        () = link.door.ended() => "the session ended".to_owned(),
        () = link.shared.draining.cancelled() => "the gateway stopped".to_owned(),
        () = link.late() => format!("no log-in came within {:?}", link.shared.limits.ssh_log_in),
    };
    let farewell = async {
        let told = handle.disconnect(
            Disconnect::ByApplication,
            format!("sallyport: {ending}"),
            "en".to_owned(),
        );
        if told.await.is_ok()
            && let Err(error) = running.await
        {
            tracing::debug!(%error, "an ssh client did not take its farewell");
        }
    };
    if timeout(link.shared.limits.ssh_farewell, farewell).await.is_err() {
        tracing::debug!("an ssh client did not leave when it was told");
    }
    ending
}

/// The one record of a connection that ended before any command.
async fn nothing_asked(link: &Link, connect: &Decided, ending: &str) {
    let mut ledger = link.ledger();
    ledger.decided(connect);
    match link.log_in() {
        Some(_) => ledger.verdict(Verdict::Denied, "no command was asked for"),
        None => ledger.verdict(Verdict::Denied, link.no_log_in()),
    }
    ledger.close(ending).await;
}
