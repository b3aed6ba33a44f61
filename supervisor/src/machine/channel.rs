//! The supervisor's end of the control channel: reconnects, resends, and implements [`Shim`] for the engine.
//!
//! What comes from a machine is not trusted: every answer is matched to a call, and everything kept is bounded.
mod calls;

use super::{AgentRequest, ExecCall, ExecOutcome, MachineError, OutputPiece, Shim};
use async_trait::async_trait;
use bytes::Bytes;
use calls::{Calls, Event};
use sallyport_shim::wire::channel::{Channel, ChannelError, FrameReader, write_frame};
use sallyport_shim::wire::{BlockedNotice, FromShim, KnownCredential, ToShim, VERSION};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::timeout;

/// How long a call that runs no command may take, connection loss included.
const CALL_WITHIN: Duration = Duration::from_secs(60);
/// How long the end of a command may be late: the shim's grace, killing, and a reconnect.
const END_WITHIN: Duration = Duration::from_secs(60);
const HELLO_WITHIN: Duration = Duration::from_secs(10);
const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_LAST: Duration = Duration::from_secs(1);
/// Most bytes kept for a machine that does not acknowledge them.
const KEPT_BYTES: usize = 64 << 20;
/// Most frames kept for it.
const KEPT_FRAMES: usize = 10_000;
/// Bytes of one piece of a written file.
const WRITE_PIECE: usize = 512 << 10;
/// Requests of the agent that wait to be taken; what comes above is refused at once.
const REQUESTS_WAITING: usize = 64;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The machine is gone; there will never be one.
    #[error("the machine is gone")]
    Gone,
    /// Not now.
    #[error("{0}")]
    Passing(String),
}

/// Makes connections to one machine's shim.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// A new connection.
    async fn connect(&self) -> Result<UnixStream, ConnectError>;
}

/// A machine's control channel. Its task ends when this is dropped or the machine is gone.
#[derive(Debug)]
pub struct ShimClient {
    shared: Arc<Shared>,
    requests: Mutex<mpsc::Receiver<AgentRequest>>,
    gone: watch::Receiver<bool>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    machine: String,
    session: String,
    channel: Channel<ToShim>,
    calls: Calls,
    requests: mpsc::Sender<AgentRequest>,
}

impl ShimClient {
    /// Begins to connect; calls made meanwhile wait for the connection.
    pub fn start(machine: &str, connect: impl Connect) -> Arc<ShimClient> {
        let (ask, requests) = mpsc::channel(REQUESTS_WAITING);
        let (tell_gone, gone) = watch::channel(false);
        let shared = Arc::new(Shared {
            machine: machine.to_owned(),
            session: uuid::Uuid::now_v7().to_string(),
            channel: Channel::default(),
            calls: Calls::default(),
            requests: ask,
        });
        let own = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            own.keep_connected(&connect).await;
            // Nobody may be left to hear it.
            let _unheard = tell_gone.send(true);
            own.calls.all_gone();
        });
        Arc::new(ShimClient {
            shared,
            requests: Mutex::new(requests),
            gone,
            task,
        })
    }

    fn check(&self) -> Result<(), MachineError> {
        if *self.gone.borrow() {
            return Err(MachineError::Gone(self.shared.machine.clone()));
        }
        let (bytes, frames) = self.shared.channel.kept();
        if bytes > KEPT_BYTES || frames > KEPT_FRAMES {
            return Err(self.passing("it does not acknowledge what it is sent"));
        }
        Ok(())
    }

    fn passing(&self, what: &str) -> MachineError {
        MachineError::Passing {
            id: self.shared.machine.clone(),
            what: what.to_owned(),
        }
    }

    /// Waits for a call's answer, but not for ever.
    async fn wait_for<T>(&self, receiver: tokio::sync::oneshot::Receiver<T>) -> Result<T, MachineError> {
        match timeout(CALL_WITHIN, receiver).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) if *self.gone.borrow() => Err(MachineError::Gone(self.shared.machine.clone())),
            Ok(Err(_)) => Err(self.passing("its shim was restarted during the call")),
            Err(_) => Err(self.passing("it did not answer within 60 s")),
        }
    }
}

impl Drop for ShimClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn keep_connected(&self, connect: &impl Connect) {
        let mut pause = RECONNECT_FIRST;
        loop {
            match connect.connect().await {
                Ok(stream) => match self.converse(stream).await {
                    (true, ended) => {
                        pause = RECONNECT_FIRST;
                        tracing::debug!(machine = self.machine, %ended, "control channel ended");
                    }
                    (false, ended) => {
                        tracing::warn!(machine = self.machine, %ended, "control channel not opened");
                    }
                },
                Err(ConnectError::Gone) => return,
                Err(ConnectError::Passing(why)) => {
                    tracing::debug!(machine = self.machine, why, "no control channel yet");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_LAST);
        }
    }

    /// One connection; answers whether the shim said hello, and why the connection ended.
    async fn converse(&self, stream: UnixStream) -> (bool, ChannelError) {
        let (read, mut write) = stream.into_split();
        let mut reader = FrameReader::new(read);
        let hello = ToShim::Hello {
            version: VERSION,
            session: self.session.clone(),
        };
        if let Err(error) = write_frame(&mut write, &self.channel.hello(hello)).await {
            return (false, error);
        }
        let first = match timeout(HELLO_WITHIN, reader.next::<FromShim>()).await {
            Ok(Ok(first)) => first,
            Ok(Err(error)) => return (false, error),
            Err(_) => return (false, ChannelError::Closed),
        };
        let Some(FromShim::Hello {
            boot,
            version: VERSION,
            ..
        }) = first.head.message
        else {
            return (false, ChannelError::Closed);
        };
        if self.calls.new_boot(&boot) {
            self.channel.reset();
            for told in self.calls.to_tell_again() {
                self.channel.send(told, Bytes::new());
            }
        }
        let ended = self
            .channel
            .run(&mut reader, write, first.head.acknowledged, |message, body| {
                self.deliver(message, body)
            })
            .await;
        (true, ended)
    }

    fn deliver(&self, message: FromShim, body: Bytes) {
        match message {
            FromShim::Request {
                id,
                host,
                port,
                method,
                path,
                credential,
                why,
            } => {
                let wanted = sallyport_policy::Wanted {
                    host,
                    port,
                    method,
                    path,
                    credential,
                };
                let refused = ToShim::Answer {
                    id: id.clone(),
                    granted: false,
                    text: "too many requests are waiting; ask again later".to_owned(),
                };
                let request = AgentRequest::Access { id, wanted, why };
                if self.requests.try_send(request).is_err() {
                    self.channel.send(refused, Bytes::new());
                }
            }
            FromShim::AskCredentials => {
                // The machine then goes on with what it knows.
                let _too_many = self.requests.try_send(AgentRequest::Credentials);
            }
            other => self.calls.deliver(other, body),
        }
    }
}

#[async_trait]
impl Shim for ShimClient {
    async fn setup(&self, ca_pem: &str, env: &BTreeMap<String, String>) -> Result<Vec<String>, MachineError> {
        self.check()?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        let setup = ToShim::Setup {
            ca_pem: ca_pem.to_owned(),
            env: env.clone(),
            unix_ms,
        };
        let ready = self.shared.calls.expect_ready(setup.clone());
        self.shared.channel.send(setup, Bytes::new());
        self.wait_for(ready).await
    }

    async fn exec(
        &self,
        call: &ExecCall,
        output: mpsc::Sender<OutputPiece>,
    ) -> Result<ExecOutcome, MachineError> {
        self.check()?;
        let ExecCall {
            id,
            argv,
            cwd,
            env,
            timeout_ms,
        } = call.clone();
        let mut events = self.shared.calls.expect_exec(&id);
        self.shared.channel.send(
            ToShim::Exec {
                id,
                argv,
                cwd,
                env,
                timeout_ms,
            },
            Bytes::new(),
        );
        let limit = Duration::from_millis(timeout_ms).saturating_add(END_WITHIN);
        let all = async {
            while let Some(event) = events.recv().await {
                match event {
                    // Who does not want the output may still want the end.
                    Event::Output(piece) => drop(output.send(piece).await),
                    Event::Ended(outcome) => return Ok(outcome),
                }
            }
            if *self.gone.borrow() {
                return Err(MachineError::Gone(self.shared.machine.clone()));
            }
            Err(self.passing("the same command was asked for again"))
        };
        timeout(limit, all)
            .await
            .unwrap_or_else(|_| Err(self.passing("a command did not end in time")))
    }

    async fn cancel(&self, id: &str) -> Result<(), MachineError> {
        self.check()?;
        self.shared
            .channel
            .send(ToShim::Cancel { id: id.to_owned() }, Bytes::new());
        Ok(())
    }

    async fn write_file(&self, path: &str, content: &[u8], mode: u32) -> Result<(), MachineError> {
        self.check()?;
        let (id, answer) = self.shared.calls.expect_file();
        let mut pieces = content.chunks(WRITE_PIECE).peekable();
        loop {
            let piece = Bytes::copy_from_slice(pieces.next().unwrap_or_default());
            let more = pieces.peek().is_some();
            let write = ToShim::WriteFile {
                id: id.clone(),
                path: path.to_owned(),
                mode,
                more,
            };
            self.shared.channel.send(write, piece);
            if !more {
                break;
            }
        }
        self.wait_for(answer).await?.map_err(MachineError::Call).map(drop)
    }

    async fn read_file(&self, path: &str, offset: u64, limit: u64) -> Result<(Vec<u8>, u64), MachineError> {
        self.check()?;
        let (id, answer) = self.shared.calls.expect_file();
        self.shared.channel.send(
            ToShim::ReadFile {
                id,
                path: path.to_owned(),
                offset,
                limit,
            },
            Bytes::new(),
        );
        let (content, size) = self.wait_for(answer).await?.map_err(MachineError::Call)?;
        Ok((content.to_vec(), size))
    }

    async fn blocked(&self, notice: BlockedNotice) -> Result<(), MachineError> {
        self.check()?;
        self.shared.channel.send(ToShim::Blocked { notice }, Bytes::new());
        Ok(())
    }

    async fn credentials(&self, known: Vec<KnownCredential>) -> Result<(), MachineError> {
        self.check()?;
        let told = ToShim::Credentials { known };
        self.shared.calls.keep_credentials(told.clone());
        self.shared.channel.send(told, Bytes::new());
        Ok(())
    }

    async fn next_request(&self) -> Option<AgentRequest> {
        let mut gone = self.gone.clone();
        let mut requests = self.requests.lock().await;
        tokio::select! {
            biased;
            request = requests.recv() => request,
            _ = gone.wait_for(|gone| *gone) => None,
        }
    }

    async fn answer(&self, id: &str, granted: bool, text: &str) -> Result<(), MachineError> {
        self.check()?;
        let answer = ToShim::Answer {
            id: id.to_owned(),
            granted,
            text: text.to_owned(),
        };
        self.shared.channel.send(answer, Bytes::new());
        Ok(())
    }
}

#[cfg(test)]
#[path = "channel/tests.rs"]
mod tests;
