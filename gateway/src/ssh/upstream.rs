//! The client that speaks with the real host: known by its key, logged in to with the real credential.
use super::asked::{Asked, Command};
use super::host::Host;
use super::known::Known;
use super::link::{Link, LogIn, Shown};
use super::sides::HostSide;
use super::turn::Paced;
use crate::control::types::Verdict;
use crate::secret::ssh::LogInFault;
use crate::turns::Owner;
use crate::upstream::UpstreamFault;
use russh::client::{self, Config, Handle, connect_stream};
use russh::{Channel, ChannelMsg, Disconnect, Preferred};
use sallyport_policy::{Permit, Place};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Why a host was not reached, or does not do what is asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The policy's, or whoever stands in for the host: it is not known.
    #[error("{0}")]
    Unknown(String),
    /// It cannot be reached.
    #[error(transparent)]
    Dial(#[from] UpstreamFault),
    /// It speaks no ssh that is spoken here.
    #[error("the host `{host}` and this gateway found no common ssh: {error}")]
    Handshake {
        /// Which.
        host: String,
        /// What the library says.
        error: russh::Error,
    },
    /// It takes too long.
    #[error("the host `{host}` did not {what} within {limit:?}; try again later")]
    Slow {
        /// Which.
        host: String,
        /// What was awaited.
        what: &'static str,
        /// For how long.
        limit: Duration,
    },
    /// It does not let the user in.
    #[error("the host `{host}` does not let `{user}` in {with}{}", .why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    LogIn {
        /// Which.
        host: String,
        /// Whom.
        user: String,
        /// Credential by name.
        with: String,
        /// What hinders it, where that is known.
        why: Option<Box<LogInFault>>,
    },
    /// It opens no channel, or refuses the command.
    #[error("the host `{host}` refuses {what}")]
    Refuses {
        /// Which.
        host: String,
        /// What.
        what: &'static str,
    },
}

impl Fault {
    /// As a record's verdict.
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Unknown(_) => Verdict::Denied,
            Self::Dial(fault) => fault.verdict(),
            _ => Verdict::UpstreamFailed,
        }
    }
}

/// A host, logged in to.
pub(super) struct Upstream {
    handle: Handle<Host>,
    channel: Channel<client::Msg>,
    host: String,
    limit: Duration,
    /// Things worth a remark in the record.
    pub(super) notes: Vec<String>,
}

/// Dials by the permit, makes sure of the host, and logs in as the agent did, with the real credential.
pub(super) async fn connect(
    link: &Link,
    permit: &Permit,
    log_in: &LogIn,
    credential: Option<&(String, Place)>,
) -> Result<Upstream, Fault> {
    let limits = &link.shared.limits;
    let known = Known::of(&link.session.known_hosts(), &link.destination).map_err(Fault::Unknown)?;
    let dialled = link.shared.upstream.dial(&link.session, permit).await?;
    let host = link.destination.host.to_string();
    let slow = |what, limit| Fault::Slow {
        host: host.clone(),
        what,
        limit,
    };
    let config = Config {
        client_id: russh::SshId::Standard("SSH-2.0-sallyport".into()),
        preferred: Preferred {
            key: known.algorithms().into(),
            ..Preferred::default()
        },
        ..Config::default()
    };
    let (handler, stranger) = Host::new(known);
    let owner = Owner::Session(link.session.id().into());
    let (stream, entered) = Paced::new(dialled.stream, link.shared.turns.clone(), owner);
    let handshake = connect_stream(Arc::new(config), stream, handler);
    let mut handle = timeout(limits.upstream_handshake, handshake)
        .await
        .map_err(|_| slow("finish its handshake", limits.upstream_handshake))?
        .map_err(|error| match stranger.why() {
            Some(why) => Fault::Unknown(why),
            None => Fault::Handshake {
                host: host.clone(),
                error,
            },
        })?;
    let limit = limits.ssh_log_in;
    timeout(limit, enter(link, log_in, credential, &mut handle))
        .await
        .map_err(|_| slow("let the user in", limit))??;
    entered.set();
    let channel = timeout(limit, handle.channel_open_session())
        .await
        .map_err(|_| slow("open a channel", limit))?
        .map_err(|_| Fault::Refuses {
            host: host.clone(),
            what: "to open a channel",
        })?;
    Ok(Upstream {
        handle,
        channel,
        host,
        limit,
        notes: dialled.notes,
    })
}

async fn enter(
    link: &Link,
    log_in: &LogIn,
    credential: Option<&(String, Place)>,
    handle: &mut Handle<Host>,
) -> Result<(), Fault> {
    let user = log_in.user.as_str();
    let entered = match credential {
        Some((name, place)) => link.session.secrets().ssh_log_in(name, place, user, handle).await,
        None => handle
            .authenticate_none(user)
            .await
            .map(|result| result.success())
            .map_err(LogInFault::from),
    };
    let why = match entered {
        Ok(true) => return Ok(()),
        Ok(false) => None,
        Err(fault) => Some(Box::new(fault)),
    };
    let with = match (credential, &log_in.shown) {
        (Some((name, _)), _) => format!("with the credential `{name}`"),
        (None, Shown::Credential(..)) => {
            "without a credential, since no rule that allows this puts one in".to_owned()
        }
        (None, Shown::Nothing) => "without a credential; a rule with `use` can put one in".to_owned(),
    };
    Err(Fault::LogIn {
        host: link.destination.host.to_string(),
        user: user.to_owned(),
        with,
        why,
    })
}

impl Upstream {
    /// Asks for the command, with its terminal and variables.
    pub(super) async fn ask(&mut self, asked: &Asked) -> Result<(), Fault> {
        let limit = self.limit;
        let host = self.host.clone();
        timeout(limit, self.put(asked)).await.map_err(|_| Fault::Slow {
            host,
            what: "begin the command",
            limit,
        })?
    }

    async fn put(&mut self, asked: &Asked) -> Result<(), Fault> {
        if let Some(terminal) = &asked.terminal {
            let [columns, rows, width, height] = terminal.size;
            let asking = self.channel.request_pty(
                true,
                &terminal.kind,
                columns,
                rows,
                width,
                height,
                &terminal.modes,
            );
            self.sent(asking.await, "a terminal")?;
            self.answered("a terminal").await?;
        }
        for (name, value) in &asked.variables {
            let set = self.channel.set_env(false, name.as_str(), value.as_str()).await;
            self.sent(set, "a variable")?;
        }
        let asking = match &asked.command {
            Command::Exec(line) => self.channel.exec(true, line.clone()).await,
            Command::Shell => self.channel.request_shell(true).await,
            Command::Subsystem(name) => self.channel.request_subsystem(true, name.as_str()).await,
        };
        self.sent(asking, "the command")?;
        self.answered("the command").await
    }

    fn sent(&self, sent: Result<(), russh::Error>, what: &'static str) -> Result<(), Fault> {
        sent.map_err(|_| Fault::Refuses {
            host: self.host.clone(),
            what,
        })
    }

    async fn answered(&mut self, what: &'static str) -> Result<(), Fault> {
        loop {
            match self.channel.wait().await {
                Some(ChannelMsg::Success) => return Ok(()),
                Some(ChannelMsg::Failure | ChannelMsg::Close) | None => {
                    return self.sent(Err(russh::Error::Disconnect), what);
                }
                Some(_) => {}
            }
        }
    }

    /// The channel, and what keeps its connection.
    pub(super) fn split(self) -> (HostSide, Connection) {
        let (read, write) = self.channel.split();
        (HostSide { read, write }, Connection(self.handle))
    }
}

/// Keeps the connection to a host while a command runs.
pub(super) struct Connection(Handle<Host>);

impl Connection {
    /// Ends it.
    pub(super) async fn end(self) {
        if let Err(error) = self.0.disconnect(Disconnect::ByApplication, "", "en").await {
            tracing::debug!(%error, "a host had left before");
        }
    }
}
