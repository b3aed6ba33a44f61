//! The bytes of one running command, both ways: counted, guarded on the way out, redacted on the way back.
use super::push::Gate;
use super::queue::{Back, Puts, Queue};
use super::sides::{AgentSide, HostSide};
use super::stop::Cut;
use super::watch::{Guarded, Redacted, Watch};
use bytes::Bytes;
use russh::server::Handle;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client, server};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

/// Standard error, as extended data (RFC 4254 section 5.2).
pub(super) const STDERR: u32 = 1;

/// What a host has said of its command's end.
#[derive(Debug, Default)]
struct Told {
    /// That no more output comes.
    eof: OnceLock<()>,
    exited: OnceLock<Done>,
}

/// How a command ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// With this status.
    Exited(u32),
    /// By a signal.
    Killed,
    /// Its channel was closed without a word.
    Closed,
    /// The connection to the host broke.
    Broken,
    /// The agent closed the channel.
    Left,
}

/// Carries bytes until the command is over on both sides.
pub(super) async fn carry(
    agent: &mut AgentSide,
    host: HostSide,
    watch: &Watch<'_>,
    gate: Option<Gate<'_>>,
) -> Result<Done, Cut> {
    let queue = Queue::new();
    let (puts, takes) = queue.ends();
    let HostSide { mut read, write } = host;
    let told = Told::default();
    let back = async {
        let done = inwards(&mut read, &puts, watch, &told).await;
        drop(puts);
        done
    };
    let AgentSide {
        read: from_agent,
        write: to_agent,
        handle,
        ..
    } = agent;
    let both = async {
        let (done, ()) = tokio::join!(back, deliver(takes, to_agent, handle, &queue));
        done
    };
    let mut both = std::pin::pin!(both);
    let left = tokio::select! {
        done = &mut both => Err(done),
        left = outwards(from_agent, (&write, &queue), watch, gate) => Ok(left),
    };
    let done = match left {
        Err(done) => done,
        Ok(Err(cut)) => Err(cut),
        Ok(Ok(())) => {
            // A client that has read all may be quicker than the host's word on how its command ended, and than its farewell.
            let late = match told.eof.get().is_some() && told.exited.get().is_none() {
                true => timeout(watch.farewell, both).await.ok(),
                false => None,
            };
            match late {
                // What comes late is held against the same bounds.
                Some(Err(cut)) => Err(cut),
                _ => Ok(told.exited.get().copied().unwrap_or(Done::Left)),
            }
        }
    };
    if let Err(error) = write.close().await {
        tracing::debug!(%error, "an upstream's channel was closed already");
    }
    done
}

/// From the agent to the host, until the agent closes the channel.
async fn outwards(
    agent: &mut ChannelReadHalf,
    (host, queue): (&ChannelWriteHalf<client::Msg>, &Queue),
    watch: &Watch<'_>,
    mut gate: Option<Gate<'_>>,
) -> Result<(), Cut> {
    let mut guard = Guarded::new(watch);
    loop {
        let message = match guard.holds() {
            false => agent.wait().await,
            true => match timeout(watch.held, agent.wait()).await {
                Ok(message) => message,
                Err(_) => {
                    let rest = guard.finish()?;
                    send(host, rest, queue).await;
                    continue;
                }
            },
        };
        match message {
            Some(ChannelMsg::Data { data }) => {
                watch.pass.take(data.len()).map_err(Cut::Limit)?;
                watch
                    .traffic
                    .bytes_out
                    .fetch_add(data.len() as u64, Ordering::Relaxed);
                let passed = match &mut gate {
                    Some(gate) => gate.look(data).await?,
                    None => vec![data],
                };
                for piece in passed {
                    let settled = guard.push(&piece)?;
                    send(host, settled, queue).await;
                }
            }
            Some(ChannelMsg::Eof) => {
                if let Some(gate) = &mut gate {
                    for piece in gate.end().await? {
                        let settled = guard.push(&piece)?;
                        send(host, settled, queue).await;
                    }
                }
                let rest = guard.finish()?;
                send(host, rest, queue).await;
                gone(host.eof().await);
            }
            Some(ChannelMsg::WindowChange {
                col_width,
                row_height,
                pix_width,
                pix_height,
            }) => gone(
                host.window_change(col_width, row_height, pix_width, pix_height)
                    .await,
            ),
            Some(ChannelMsg::Signal { signal }) => gone(host.signal(signal).await),
            Some(ChannelMsg::Close) | None => return Ok(()),
            Some(_) => {}
        }
    }
}

/// Reads to the end of what an agent sends, and forgets it.
pub(super) async fn drain(agent: &mut ChannelReadHalf) {
    while let Some(message) = agent.wait().await {
        if matches!(message, ChannelMsg::Eof | ChannelMsg::Close) {
            return;
        }
    }
}

/// A host that takes nothing more may still have something to say.
async fn send(host: &ChannelWriteHalf<client::Msg>, bytes: Bytes, queue: &Queue) {
    if bytes.is_empty() {
        return;
    }
    queue.input_waits(true);
    gone(host.data_bytes(bytes).await);
    queue.input_waits(false);
}

fn gone(sent: Result<(), russh::Error>) {
    if let Err(error) = sent {
        tracing::debug!(%error, "a host takes nothing more");
    }
}

/// From the host into the queue, until the host closes the channel.
async fn inwards(
    host: &mut ChannelReadHalf,
    puts: &Puts<'_>,
    watch: &Watch<'_>,
    told: &Told,
) -> Result<Done, Cut> {
    let (mut output, mut errors) = (Redacted::new(watch), Redacted::new(watch));
    loop {
        let message = match output.holds() || errors.holds() {
            false => host.wait().await,
            true => match timeout(watch.held, host.wait()).await {
                Ok(message) => message,
                Err(_) => {
                    settle(puts, output.finish(), errors.finish()).await?;
                    continue;
                }
            },
        };
        match message {
            Some(ChannelMsg::Data { data }) => {
                let settled = output.push(&data, watch)?;
                settle(puts, settled, Bytes::new()).await?;
            }
            Some(ChannelMsg::ExtendedData { data, ext: STDERR }) => {
                let settled = errors.push(&data, watch)?;
                settle(puts, Bytes::new(), settled).await?;
            }
            Some(ChannelMsg::Eof) => {
                settle(puts, output.finish(), errors.finish()).await?;
                told.eof.get_or_init(|| ());
                puts.put(Back::Eof).await?;
            }
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                settle(puts, output.finish(), errors.finish()).await?;
                told.exited.get_or_init(|| Done::Exited(exit_status));
                puts.put(Back::Exited(exit_status)).await?;
            }
            Some(ChannelMsg::ExitSignal {
                signal_name,
                core_dumped,
                error_message,
                ..
            }) => {
                settle(puts, output.finish(), errors.finish()).await?;
                told.exited.get_or_init(|| Done::Killed);
                let killed = Back::Killed {
                    signal: signal_name,
                    core_dumped,
                    message: error_message,
                };
                puts.put(killed).await?;
            }
            Some(ChannelMsg::Close) => {
                settle(puts, output.finish(), errors.finish()).await?;
                return Ok(told.exited.get().copied().unwrap_or(Done::Closed));
            }
            None => return Ok(told.exited.get().copied().unwrap_or(Done::Broken)),
            Some(_) => {}
        }
    }
}

async fn settle(puts: &Puts<'_>, output: Bytes, errors: Bytes) -> Result<(), Cut> {
    if !output.is_empty() {
        puts.put(Back::Output(output)).await?;
    }
    if !errors.is_empty() {
        puts.put(Back::Error(errors)).await?;
    }
    Ok(())
}

/// From the queue to the agent, as it takes it.
async fn deliver(
    mut takes: UnboundedReceiver<Back>,
    agent: &ChannelWriteHalf<server::Msg>,
    handle: &Handle,
    queue: &Queue,
) {
    while let Some(back) = takes.recv().await {
        let sent = match back {
            Back::Output(bytes) => {
                let count = bytes.len();
                let sent = agent.data_bytes(bytes).await;
                queue.took(count);
                sent
            }
            Back::Error(bytes) => {
                let count = bytes.len();
                let sent = agent.extended_data_bytes(STDERR, bytes).await;
                queue.took(count);
                sent
            }
            Back::Eof => agent.eof().await,
            Back::Exited(status) => agent.exit_status(status).await,
            Back::Killed {
                signal,
                core_dumped,
                message,
            } => handle
                .exit_signal_request(agent.id(), signal, core_dumped, message, "en".to_owned())
                .await
                .map_err(|()| russh::Error::SendError),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "an agent takes nothing more");
        }
    }
}
