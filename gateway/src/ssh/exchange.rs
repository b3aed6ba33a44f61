//! ONE command over ssh through every stage, in order, as `http/exchange.rs` takes one request.
//!
//! command -> decision -> credential -> guard and bounds -> host (known, logged in to) -> record -> bytes both ways -> record.
//! Each stage hands on what the next one demands, or ends with a `Stop`, which the agent reads on its standard error.
use super::asked::{self, Asked};
use super::flow::{self, Done, STDERR, Watch};
use super::link::{Link, LogIn, Shown};
use super::means::Means;
use super::sides::AgentSide;
use super::stop::Stop;
use super::upstream::{self, Upstream};
use crate::lasting::{Hold, over};
use crate::ledger::Ledger;
use crate::secret::SessionSecrets;
use crate::session::quota::Pass;
use bytes::{Bytes, BytesMut};
use russh::Channel;
use russh::server::{Handle, Msg};
use sallyport_policy::{Decision, Moment, Permit, Place, Request, SshRequest};
use std::sync::Arc;

/// What a client exits with where ssh itself failed (ssh(1), "EXIT STATUS").
const FAILED: u32 = 255;

/// A channel that the agent opened.
pub(super) struct Line {
    pub(super) channel: Channel<Msg>,
    pub(super) handle: Handle,
    pub(super) log_in: LogIn,
}

/// A command that runs.
struct Running {
    permit: Permit,
    secrets: Arc<SessionSecrets>,
    pass: Pass,
    upstream: Upstream,
}

/// Takes what comes on a channel from its command to its end. Always answers; always leaves a record where there was a command.
pub(super) async fn exchange(link: Arc<Link>, line: Line) {
    let Line {
        mut channel,
        handle,
        log_in,
    } = line;
    let Some(asked) = asked::read(&mut channel).await else {
        return;
    };
    link.note_asked();
    let recorder = &link.shared.recorder;
    let mut ledger = recorder.open(Some(&link.session), Some(&link.destination), "ssh");
    ledger.asked(asked.command.method(), &asked.command.text());
    let (read, write) = channel.split();
    let mut agent = AgentSide { read, write, handle };
    let started = tokio::select! {
        started = start(&link, &log_in, &asked, &mut ledger) => started,
        () = link.door.ended() => return ledger.close("the session ended").await,
    };
    let running = match started {
        Ok(running) => running,
        Err(stop) => {
            let why = stop.note(&mut ledger, &link.destination.host.to_string());
            tell(&agent, &asked, &why, ledger.id()).await;
            return ledger.close(stop.ending()).await;
        }
    };
    let ending = run(&link, &asked, &mut agent, running, &mut ledger).await;
    ledger.close(&ending).await;
}

/// Up to a command that runs upstream and may take its first byte.
async fn start(link: &Link, log_in: &LogIn, asked: &Asked, ledger: &mut Ledger) -> Result<Running, Stop> {
    let permit = decide(link, log_in, asked, ledger)?;
    let secrets = link.session.secrets();
    let credential = credential(link, &permit, log_in, ledger)?;
    guard(&secrets, asked)?;
    let pass = link.session.begin(&permit, None).map_err(Stop::Limit)?;
    let mut upstream = upstream::connect(link, &permit, log_in, credential.as_ref())
        .await
        .map_err(Stop::Upstream)?;
    for note in &upstream.notes {
        ledger.remark(note);
    }
    ledger.used(credential.into_iter().map(|(name, _)| name).collect());
    ledger.write_open().await.map_err(Stop::Audit)?;
    upstream.ask(asked).await.map_err(Stop::Upstream)?;
    Ok(Running {
        permit,
        secrets,
        pass,
        upstream,
    })
}

/// Asks the policy of this moment.
fn decide(link: &Link, log_in: &LogIn, asked: &Asked, ledger: &mut Ledger) -> Result<Permit, Stop> {
    let question = Request {
        destination: link.destination.clone(),
        moment: Moment::Ssh(SshRequest {
            user: log_in.user.clone(),
            git: asked.command.git(),
        }),
    };
    let decided = link.session.decide(&question);
    ledger.decided(&decided);
    match decided.decision {
        Decision::Allow(permit) => Ok(permit),
        Decision::Ask(refusal) | Decision::Deny(refusal) => Err(Stop::Refused(refusal)),
        Decision::Inspect => Err(Stop::Undecided(link.session.undecided(&question))),
    }
}

/// The credential to log in with: what the agent showed, where the permit puts it in.
fn credential(
    link: &Link,
    permit: &Permit,
    log_in: &LogIn,
    ledger: &mut Ledger,
) -> Result<Option<(String, Place)>, Stop> {
    let means = Means::of(link);
    let bound = |names: &[String]| names.iter().any(|name| permit.carries(name));
    let wanted = bound(&means.keys) || bound(&means.passwords);
    match &log_in.shown {
        Shown::Credential(name, place) if permit.carries(name) => Ok(Some((name.clone(), place.clone()))),
        Shown::Credential(name, _) if wanted => Err(Stop::LogIn(format!(
            "rule `{}` does not put credential `{name}` in here; {}",
            permit.rule(),
            means.told()
        ))),
        Shown::Credential(name, _) => {
            ledger.remark(&format!(
                "credential `{name}` was shown, and no rule that allows this puts it in"
            ));
            Ok(None)
        }
        Shown::Nothing if wanted => {
            let foreign = link.foreign_keys();
            let gap = if foreign.is_empty() { "" } else { "; " };
            Err(Stop::LogIn(format!("{foreign}{gap}{}", means.told())))
        }
        Shown::Nothing => Ok(None),
    }
}

/// A command line is sent as it is, so that no value may stand in it.
fn guard(secrets: &SessionSecrets, asked: &Asked) -> Result<(), Stop> {
    let Some(mut guard) = secrets.body_guard() else {
        return Ok(());
    };
    let mut settled = BytesMut::new();
    let text = asked.command.text();
    let variables = asked.variables.iter().flat_map(|(name, value)| [name, value]);
    for piece in std::iter::once(&text).chain(variables) {
        guard.push(piece.as_bytes(), &mut settled).map_err(Stop::Leak)?;
        guard.finish(&mut settled).map_err(Stop::Leak)?;
    }
    Ok(())
}

/// Carries the command's bytes; its ending, in words.
async fn run(
    link: &Link,
    asked: &Asked,
    agent: &mut AgentSide,
    running: Running,
    ledger: &mut Ledger,
) -> String {
    let Running {
        permit,
        secrets,
        pass,
        upstream,
    } = running;
    let limits = &link.shared.limits;
    let traffic = ledger.traffic();
    let watch = Watch {
        traffic: traffic.clone(),
        pass: &pass,
        secrets: &secrets,
        held: limits.ssh_held,
    };
    let hold = Hold {
        door: &link.door,
        session: &link.session,
        permit: &permit,
        traffic: &traffic,
    };
    let (host, connection) = upstream.split();
    let (told, ending) = tokio::select! {
        done = flow::carry(agent, host, &watch) => match done {
            Ok(Done::Exited(0) | Done::Closed) => (None, "complete".to_owned()),
            Ok(Done::Exited(status)) => (None, format!("complete, exit status {status}")),
            Ok(Done::Killed) => (None, "complete, ended by a signal".to_owned()),
            Ok(Done::Left) => (None, "the client closed the channel".to_owned()),
            Ok(Done::Broken) => (Some("the connection to the host broke".to_owned()), "incomplete: the connection to the host broke".to_owned()),
            Err(cut) => (cut.note(ledger), "cut".to_owned()),
        },
        over = over(&link.shared, hold, limits.tunnel_idle) => (Some(over.ending().to_owned()), over.ending().to_owned()),
    };
    connection.end().await;
    match told {
        Some(why) => tell(agent, asked, &why, ledger.id()).await,
        None => close(agent).await,
    }
    ending
}

/// Tells the agent on its standard error why its command does not run (on), and ends the channel as a failure of ssh.
async fn tell(agent: &AgentSide, asked: &Asked, why: &str, id: &str) {
    let end = if asked.terminal.is_some() { "\r\n" } else { "\n" };
    let text: String = format!("sallyport: {why} (decision {id})")
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    let said = async {
        agent
            .write
            .extended_data_bytes(STDERR, Bytes::from(text + end))
            .await?;
        agent.write.eof().await?;
        agent.write.exit_status(FAILED).await
    };
    if let Err(error) = said.await {
        tracing::debug!(%error, "a refusal did not reach its client");
    }
    close(agent).await;
}

async fn close(agent: &AgentSide) {
    if let Err(error) = agent.write.close().await {
        tracing::debug!(%error, "a client had closed its connection before");
    }
}
