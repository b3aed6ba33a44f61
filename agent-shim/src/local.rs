//! The agent's own line to the serving shim: one question and one answer, each a JSON line, on a unix socket.
use crate::exec::Background;
use crate::wire::channel::Channel;
use crate::wire::{BlockedNotice, FromShim, KnownCredential};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot, watch};

/// Where the serving shim listens inside the machine.
pub const SOCKET: &str = "/run/sallyport/shim.sock";
/// Longest question, in bytes.
const LINE_LIMIT: u64 = 256 * 1024;
/// Refusals kept for `blocked`.
const NOTICES_KEPT: usize = 200;
/// Questions served at the same time.
const AT_ONCE: usize = 64;

/// How long the supervisor may take to tell of the credentials before what is known is given out.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// What the agent's command line asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub enum Ask {
    /// What was refused lately?
    Blocked,
    /// May this be reached, or may this credential be used there?
    RequestAccess(Wish),
    /// What may be known of the credentials?
    Credentials,
    /// Keep a command running after the tool call that asks for it.
    Background {
        /// Program and arguments.
        argv: Vec<String>,
        /// Working directory.
        cwd: String,
        /// The whole environment.
        env: BTreeMap<String, String>,
    },
}

/// What the agent wants to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Method, if only one is wanted.
    pub method: Option<String>,
    /// Path, if only one is wanted.
    pub path: Option<String>,
    /// The credential that is wanted there, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Why, in the agent's words.
    pub why: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply")]
pub enum Reply {
    /// Refusals, oldest first.
    Blocked {
        /// Them.
        notices: Vec<BlockedNotice>,
    },
    /// What is known of the credentials.
    Credentials {
        /// Each once.
        known: Vec<KnownCredential>,
        /// Whether the supervisor told it just now; else it is what was told last.
        fresh: bool,
    },
    /// What the supervisor says to a wish.
    Answer {
        /// Whether it was granted.
        granted: bool,
        /// Sentence for the agent.
        text: String,
    },
    /// The command runs.
    Background {
        /// Its keeping process.
        pid: u32,
        /// Where its output goes.
        log: String,
    },
    /// The question was bad, or could not be served.
    Error {
        /// Why.
        text: String,
    },
}

/// Serves the questions.
#[derive(Debug, Clone)]
pub struct Local {
    channel: Arc<Channel<FromShim>>,
    background: Background,
    state: Arc<Mutex<State>>,
    seats: Arc<Semaphore>,
    credentials: Arc<watch::Sender<Vec<KnownCredential>>>,
}

#[derive(Debug, Default)]
struct State {
    notices: VecDeque<BlockedNotice>,
    wishes: HashMap<String, (Wish, oneshot::Sender<(bool, String)>)>,
    count: u64,
}

impl Local {
    /// Nothing asked, nothing refused yet.
    pub fn new(channel: Arc<Channel<FromShim>>, background: Background) -> Self {
        Local {
            channel,
            background,
            state: Arc::default(),
            seats: Arc::new(Semaphore::new(AT_ONCE)),
            credentials: Arc::default(),
        }
    }

    /// Listens at `path` until the process ends.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        let own = self.clone();
        tokio::spawn(async move {
            loop {
                let Ok(seat) = Arc::clone(&own.seats).acquire_owned().await else {
                    return;
                };
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of descriptors, most likely: let others finish first.
                    tokio::task::yield_now().await;
                    continue;
                };
                let own = own.clone();
                tokio::spawn(async move {
                    // The asking process may be gone; that is its own affair.
                    let _gone = own.serve(stream).await;
                    drop(seat);
                });
            }
        });
        Ok(())
    }

    /// Keeps a refusal for `blocked`.
    pub fn blocked(&self, notice: BlockedNotice) {
        let mut state = self.state();
        if state.notices.len() == NOTICES_KEPT {
            state.notices.pop_front();
        }
        state.notices.push_back(notice);
    }

    /// Takes what the supervisor tells of the credentials, for all who wait for it.
    pub fn credentials(&self, known: Vec<KnownCredential>) {
        self.credentials.send_replace(known);
    }

    /// Hands an answer to the waiting command; nobody may be waiting any more.
    pub fn answer(&self, id: &str, granted: bool, text: String) {
        if let Some((_, waiting)) = self.state().wishes.remove(id) {
            let _unheard = waiting.send((granted, text));
        }
    }

    /// Tells a new supervisor what is still waited for.
    pub fn new_session(&self) {
        for (id, (wish, _)) in &self.state().wishes {
            self.tell(id, wish);
        }
    }

    async fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let (read, mut write) = stream.split();
        let mut read = BufReader::new(read.take(LINE_LIMIT));
        let mut line = String::new();
        read.read_line(&mut line).await?;
        let reply = match serde_json::from_str(&line) {
            Ok(Ask::Blocked) => Reply::Blocked {
                notices: self.state().notices.iter().cloned().collect(),
            },
            Ok(Ask::Credentials) => self.ask_credentials().await,
            Ok(Ask::Background { argv, cwd, env }) => match self.background.start(&argv, &cwd, &env) {
                Ok((pid, log)) => Reply::Background { pid, log },
                Err(text) => Reply::Error { text },
            },
            Ok(Ask::RequestAccess(wish)) => {
                let (id, answer) = self.wish(wish);
                let mut rest = Vec::new();
                let reply = tokio::select! {
                    answer = answer => match answer {
                        Ok((granted, text)) => Reply::Answer { granted, text },
                        Err(_) => Reply::Error { text: "the question was dropped".to_owned() },
                    },
                    _ = read.read_to_end(&mut rest) => Reply::Error { text: "nobody waits".to_owned() },
                };
                self.state().wishes.remove(&id);
                reply
            }
            Err(error) => Reply::Error {
                text: format!("the question cannot be read: {error}"),
            },
        };
        let mut line = serde_json::to_vec(&reply)?;
        line.push(b'\n');
        write.write_all(&line).await
    }

    /// What the supervisor tells now, or, where it does not answer, what it told last.
    async fn ask_credentials(&self) -> Reply {
        let mut told = self.credentials.subscribe();
        told.mark_unchanged();
        self.channel.send(FromShim::AskCredentials, Bytes::new());
        let fresh = matches!(
            tokio::time::timeout(TOLD_WITHIN, told.changed()).await,
            Ok(Ok(()))
        );
        let known = told.borrow().clone();
        Reply::Credentials { known, fresh }
    }

    fn wish(&self, wish: Wish) -> (String, oneshot::Receiver<(bool, String)>) {
        let (tell, told) = oneshot::channel();
        let mut state = self.state();
        state.count += 1;
        let id = format!("request-{}-{}", crate::boot::boot(), state.count);
        self.tell(&id, &wish);
        state.wishes.insert(id.clone(), (wish, tell));
        (id, told)
    }

    fn tell(&self, id: &str, wish: &Wish) {
        let Wish {
            host,
            port,
            method,
            path,
            credential,
            why,
        } = wish.clone();
        self.channel.send(
            FromShim::Request {
                id: id.to_owned(),
                host,
                port,
                method,
                path,
                credential,
                why,
            },
            Bytes::new(),
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
