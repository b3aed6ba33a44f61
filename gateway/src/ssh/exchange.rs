//! ONE command over ssh through every stage, in order, as `http/exchange.rs` takes one request.
//!
//! command -> decision -> credential -> guard and bounds -> host (known, logged in to) -> record -> bytes both ways -> record.
//! Each stage hands on what the next one demands, or ends with a `Stop`, which the agent reads on its standard error.
use super::asked::{self, Asked};
use super::flow::{self, Done, STDERR};
use super::link::{Link, LogIn, Shown};
use super::means::Means;
use super::push::{Gate, Wanted};
use super::sides::AgentSide;
use super::stop::{Cut, Stop};
use super::upstream::{self, Upstream};
use super::watch::Watch;
use crate::lasting::{Hold, over};
use crate::ledger::Ledger;
use crate::secret::SessionSecrets;
use crate::session::quota::Pass;
use bytes::{Bytes, BytesMut};
use russh::Channel;
use russh::server::{Handle, Msg};
use sallyport_policy::{Decision, GitAccess, Moment, Permit, Place, Request, SshRequest};
use std::sync::Arc;
use tokio::time::timeout;

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
    /// A push that is read before anything of it goes on.
    push: Option<Wanted>,
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
    let mut ledger = link.ledger();
    ledger.asked(asked.command.method(), &asked.command.text());
    ledger.login(&log_in.user);
    let (read, write) = channel.split();
    let farewell = link.shared.limits.ssh_farewell;
    let mut agent = AgentSide {
        read,
        write,
        handle,
        farewell,
    };
    note(&agent, &asked, &link.untold()).await;
    let started = tokio::select! {
        started = start(&link, &log_in, &asked, &mut ledger) => started,
        () = link.door.ended() => return ledger.close("the session ended").await,
    };
    let running = match started {
        Ok(running) => running,
        Err(stop) => {
            let why = stop.note(&mut ledger, &link.destination.host.to_string());
            let id = ledger.id().to_owned();
            ledger.close(stop.ending()).await;
            return tell(&agent, &asked, &why, &id).await;
        }
    };
    let ending = run(&link, &asked, &mut agent, running, &mut ledger).await;
    ledger.close(&ending).await;
}

/// Up to a command that runs upstream and may take its first byte.
async fn start(link: &Link, log_in: &LogIn, asked: &Asked, ledger: &mut Ledger) -> Result<Running, Stop> {
    let (permit, push) = decide(link, log_in, asked, ledger)?;
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
    let credential = credential.map(|(name, _)| name);
    ledger.used(credential.iter().cloned().collect());
    // What is read first has its first record when its refs are known.
    let push = push.map(|wanted| Wanted { credential, ..wanted });
    if push.is_none() {
        ledger.write_open().await.map_err(Stop::Audit)?;
    }
    upstream.ask(asked).await.map_err(Stop::Upstream)?;
    Ok(Running {
        permit,
        secrets,
        pass,
        upstream,
        push,
    })
}

/// Asks the policy of this moment. A push whose rules look at its refs is let as far as to hear what is there, and is read
/// before anything of it goes on.
fn decide(
    link: &Link,
    log_in: &LogIn,
    asked: &Asked,
    ledger: &mut Ledger,
) -> Result<(Permit, Option<Wanted>), Stop> {
    let git = asked.command.git();
    let question = Request {
        destination: link.destination.clone(),
        moment: Moment::Ssh(SshRequest {
            user: log_in.user.clone(),
            git: git.clone(),
        }),
    };
    let decided = link.session.decide(&question);
    let push = git
        .filter(|git| git.access == GitAccess::Write && matches!(decided.decision, Decision::Inspect))
        .map(|git| Wanted {
            user: log_in.user.clone(),
            git,
            credential: None,
        });
    let decided = match &push {
        // As a push that changes nothing.
        Some(wanted) => link.session.decide_ahead(&wanted.question(link, Vec::new())),
        None => decided,
    };
    ledger.decided(&decided);
    match decided.decision {
        Decision::Allow(permit) => Ok((permit, push)),
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
        push,
    } = running;
    let limits = &link.shared.limits;
    let traffic = ledger.traffic();
    let git = asked.command.git();
    let is_push = git.is_some_and(|git| git.access == GitAccess::Write);
    let watch = Watch {
        traffic: traffic.clone(),
        pass: &pass,
        session: &link.session,
        secrets: &secrets,
        inflated: is_push.then_some(limits.push_inflated),
        held: limits.ssh_held,
        farewell: limits.ssh_farewell,
    };
    let hold = Hold {
        door: &link.door,
        session: &link.session,
        permit: &permit,
        traffic: &traffic,
    };
    let (host, connection) = upstream.split();
    let gate = push.map(|wanted| Gate::new(link, wanted, ledger));
    let done = tokio::select! {
        done = flow::carry(agent, host, &watch, gate) => done,
        over = over(&link.shared, hold, limits.tunnel_idle) => {
            connection.end().await;
            tell(agent, asked, over.ending(), ledger.id()).await;
            return over.ending().to_owned();
        }
    };
    connection.end().await;
    match done {
        Ok(done) => ended(agent, asked, done, ledger).await,
        Err(cut) => cut_off(link, agent, asked, cut, ledger).await,
    }
}

/// A command ended by itself; the ending, in words.
async fn ended(agent: &AgentSide, asked: &Asked, done: Done, ledger: &Ledger) -> String {
    if done == Done::Broken {
        let why = "the connection to the host broke";
        tell(agent, asked, why, ledger.id()).await;
        return format!("incomplete: {why}");
    }
    close(agent).await;
    match done {
        Done::Exited(status) if status > 0 => format!("complete, exit status {status}"),
        Done::Killed => "complete, ended by a signal".to_owned(),
        Done::Left => "the client closed the channel".to_owned(),
        Done::Exited(_) | Done::Closed | Done::Broken => "complete".to_owned(),
    }
}

/// A command was cut; the ending, in words.
async fn cut_off(link: &Link, agent: &mut AgentSide, asked: &Asked, cut: Cut, ledger: &mut Ledger) -> String {
    let why = cut.note(ledger);
    if let Cut::Push { report, .. } = cut {
        let report = Bytes::from(report.unwrap_or_default());
        hand(agent, agent.write.data_bytes(report)).await;
        say(agent, asked, &why.unwrap_or_default(), ledger.id()).await;
        // A client that still sends its pack reads the report only after it.
        if timeout(link.shared.limits.request_body_idle, flow::drain(&mut agent.read))
            .await
            .is_err()
        {
            tracing::debug!("a client did not end its push");
        }
        close(agent).await;
        return "refused".to_owned();
    }
    match why {
        Some(why) => tell(agent, asked, &why, ledger.id()).await,
        None => close(agent).await,
    }
    "cut".to_owned()
}

/// Tells the agent why its command does not run (on), and closes the channel.
async fn tell(agent: &AgentSide, asked: &Asked, why: &str, id: &str) {
    say(agent, asked, why, id).await;
    close(agent).await;
}

/// Says on the agent's standard error why its command does not run (on), and ends it as a failure of ssh.
async fn say(agent: &AgentSide, asked: &Asked, why: &str, id: &str) {
    note(agent, asked, &[format!("{why} (decision {id})")]).await;
    let said = async {
        agent.write.eof().await?;
        agent.write.exit_status(FAILED).await
    };
    hand(agent, said).await;
}

/// Lines on the agent's standard error.
async fn note(agent: &AgentSide, asked: &Asked, texts: &[String]) {
    let end = if asked.terminal.is_some() { "\r\n" } else { "\n" };
    let mut lines = String::new();
    for text in texts {
        lines.push_str("sallyport: ");
        lines.extend(text.chars().filter(|letter| !letter.is_control()));
        lines.push_str(end);
    }
    hand(agent, agent.write.extended_data_bytes(STDERR, lines)).await;
}

async fn close(agent: &AgentSide) {
    hand(agent, agent.write.close()).await;
}

/// Waits until the agent's connection has taken something, but not for ever: one that leaves no room for it wakes nobody when it
/// ends, and the record waits behind.
async fn hand(agent: &AgentSide, said: impl Future<Output = Result<(), russh::Error>>) {
    match timeout(agent.farewell, said).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a client had closed its connection before it was told"),
        Err(_) => tracing::debug!("a client took nothing of what it was told"),
    }
}
