//! The serving shim: accepts the supervisor's connections and does what it asks.
use crate::boot::boot;
use crate::credentials::{self, Homes};
use crate::exec::{Background, Call, Commands};
use crate::files::{self, Writing};
use crate::local::Local;
use crate::reap::Reaper;
use crate::trust;
use crate::wire::channel::{Channel, FrameReader, write_frame};
use crate::wire::{FromShim, KnownCredential, ToShim, VERSION};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// How long a new connection may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// What the serving shim works with.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program, to be started as the keeping process of commands.
    pub helper: PathBuf,
    /// Folder for long outputs.
    pub outputs: PathBuf,
    /// Socket for the agent's own command line.
    pub socket: PathBuf,
    /// Folder below which trust is installed; `/` in a machine.
    pub root: PathBuf,
    /// Variables that commands inherit.
    pub env: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Shim {
    channel: Arc<Channel<FromShim>>,
    commands: Commands,
    local: Local,
    reaper: Reaper,
    options: Options,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    session: String,
    env: BTreeMap<String, String>,
    /// Placeholders by variable, as they were told last.
    held: BTreeMap<String, String>,
    writing: HashMap<String, Result<Writing, String>>,
    writes: u64,
}

/// A piece of a file to be written.
struct Part {
    id: String,
    path: String,
    mode: u32,
    more: bool,
}

/// Serves connections from `listener`, one at a time, the newest wins; until the process ends.
///
/// # Errors
/// Only what makes serving impossible from the start.
pub async fn serve(listener: UnixListener, options: Options) -> io::Result<()> {
    let channel: Arc<Channel<FromShim>> = Arc::default();
    let reaper = Reaper::start()?;
    let commands = Commands::new(
        Arc::clone(&channel),
        reaper.clone(),
        options.helper.clone(),
        options.outputs.clone(),
    );
    let background = Background::new(reaper.clone(), options.helper.clone(), options.outputs.clone());
    let local = Local::new(Arc::clone(&channel), background);
    local.listen(&options.socket)?;
    let state = Mutex::new(State {
        env: options.env.clone(),
        ..State::default()
    });
    let shim = Arc::new(Shim {
        channel,
        commands,
        local,
        reaper,
        options,
        state,
    });
    let mut current: Option<tokio::task::JoinHandle<()>> = None;
    loop {
        let (stream, _) = listener.accept().await?;
        if let Some(old) = current.take() {
            old.abort();
            // It was told to end; how it ended does not matter.
            let _ended = old.await;
        }
        current = Some(tokio::spawn(Arc::clone(&shim).connection(stream)));
    }
}

impl Shim {
    async fn connection(self: Arc<Self>, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut reader = FrameReader::new(read);
        let Ok(Ok(first)) = tokio::time::timeout(HELLO_WITHIN, reader.next::<ToShim>()).await else {
            return;
        };
        let Some(ToShim::Hello { session, .. }) = first.head.message else {
            return;
        };
        let renewed = self.begin(&session);
        let acknowledged = if renewed { 0 } else { first.head.acknowledged };
        let hello = FromShim::Hello {
            version: VERSION,
            boot: boot().to_owned(),
            running: self.commands.running(),
        };
        if write_frame(&mut write, &self.channel.hello(hello)).await.is_err() {
            return;
        }
        let shim = Arc::clone(&self);
        // The supervisor comes back after any end of a connection; nobody is there to be told why.
        let _ended = self
            .channel
            .run(&mut reader, write, acknowledged, move |message, body| {
                shim.deliver(message, body)
            })
            .await;
    }

    /// Begins anew if the supervisor is another one than before; answers whether it is.
    fn begin(&self, session: &str) -> bool {
        let mut state = self.state();
        if state.session == session {
            return false;
        }
        session.clone_into(&mut state.session);
        state.writing.clear();
        self.channel.reset();
        self.commands.new_session();
        self.local.new_session();
        true
    }

    fn deliver(self: &Arc<Self>, message: ToShim, body: Bytes) {
        match message {
            ToShim::Hello { .. } => {}
            ToShim::Setup { ca_pem, env, unix_ms } => {
                let shim = Arc::clone(self);
                tokio::spawn(async move { shim.setup(ca_pem, env, unix_ms).await });
            }
            ToShim::Exec {
                id,
                argv,
                cwd,
                env,
                timeout_ms,
            } => {
                let mut whole = {
                    let state = self.state();
                    let mut whole = state.env.clone();
                    whole.extend(state.held.clone());
                    whole
                };
                whole.extend(env);
                self.commands.exec(Call {
                    id,
                    argv,
                    cwd,
                    env: whole,
                    timeout_ms,
                });
            }
            ToShim::Cancel { id } => self.commands.cancel(&id),
            ToShim::WriteFile { id, path, mode, more } => {
                self.write_file(Part { id, path, mode, more }, &body)
            }
            ToShim::ReadFile {
                id,
                path,
                offset,
                limit,
            } => {
                let channel = Arc::clone(&self.channel);
                tokio::task::spawn_blocking(move || {
                    let (error, content, size) = match files::read(&path, offset, limit) {
                        Ok((content, size)) => (None, content, size),
                        Err(error) => (Some(format!("`{path}`: {error}")), Vec::new(), 0),
                    };
                    channel.send(FromShim::File { id, error, size }, Bytes::from(content));
                });
            }
            ToShim::Blocked { notice } => self.local.blocked(notice),
            ToShim::Credentials { known } => self.credentials(known),
            ToShim::Answer { id, granted, text } => self.local.answer(&id, granted, text),
        }
    }

    /// Takes what is known of the credentials; commands that are begun later find it.
    fn credentials(&self, known: Vec<KnownCredential>) {
        let (mut held, warnings) = credentials::install(&self.homes(), &known);
        for warning in warnings {
            // The machine's log, if it has one; tools then need to be told.
            let _logged = writeln!(io::stderr(), "{warning}");
        }
        held.extend(
            known
                .iter()
                .filter_map(|one| Some((one.env.clone()?, one.placeholder.clone()))),
        );
        self.state().held = held;
        self.local.credentials(known);
    }

    fn homes(&self) -> Homes {
        let state = self.state();
        let home = state.env.get("HOME").or(self.options.env.get("HOME"));
        Homes {
            root: self.options.root.clone(),
            home: home.cloned().unwrap_or_else(|| "/root".to_owned()),
            program: std::fs::read_link(&self.options.helper).unwrap_or_else(|_| self.options.helper.clone()),
        }
    }

    async fn setup(self: Arc<Self>, ca_pem: String, env: BTreeMap<String, String>, unix_ms: i64) {
        let mut warnings: Vec<String> = trust::set_clock(unix_ms).into_iter().collect();
        let mut variables = trust::trust_variables();
        variables.extend(env);
        let mut whole = self.options.env.clone();
        whole.extend(variables.clone());
        self.state().env = whole;
        let root = self.options.root.clone();
        let installed = tokio::task::spawn_blocking(move || trust::install(&root, &ca_pem, &variables)).await;
        match installed {
            Ok(more) => warnings.extend(more),
            Err(error) => warnings.push(format!("trust could not be installed: {error}")),
        }
        if let Err(warning) = self.link_by_hash().await {
            warnings.push(warning);
        }
        self.channel.send(FromShim::Ready { warnings }, Bytes::new());
    }

    /// Lets clients that look into the folder of certificates find the authority, where `openssl` can say its hash.
    async fn link_by_hash(&self) -> Result<(), String> {
        use std::process::{Command, Stdio};
        let ca = self.options.root.join(trust::CA_FILE.trim_start_matches('/'));
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-subject_hash", "-in"]).arg(ca);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // Without `openssl` there is nobody who would look there.
        let Ok((mut child, _gone)) = self.reaper.spawn(&mut command) else {
            return Ok(());
        };
        let Some(out) = child.stdout.take() else {
            return Ok(());
        };
        let hash = tokio::task::spawn_blocking(move || io::read_to_string(out)).await;
        let hash = hash.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let hash = hash.trim();
        if hash.is_empty() || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("openssl cannot read the gateway's authority".to_owned());
        }
        trust::link_by_hash(&self.options.root, hash).map_err(|e| format!("`/etc/ssl/certs`: {e}"))
    }

    /// Takes a piece of a file; the pieces of one file come in order, so this does not leave the calling task.
    fn write_file(&self, part: Part, piece: &[u8]) {
        let Part { id, path, mode, more } = part;
        let mut state = self.state();
        state.writes += 1;
        let tag = state.writes;
        let writing = state
            .writing
            .remove(&id)
            .unwrap_or_else(|| Writing::begin(&path, mode, tag).map_err(|e| e.to_string()))
            .and_then(|mut writing| writing.write(piece).map(|()| writing).map_err(|e| e.to_string()));
        if more {
            state.writing.insert(id, writing);
            return;
        }
        let written = writing.and_then(|writing| writing.finish().map_err(|e| e.to_string()));
        let (error, size) = match written {
            Ok(size) => (None, size),
            Err(error) => (Some(format!("`{path}`: {error}")), 0),
        };
        self.channel
            .send(FromShim::File { id, error, size }, Bytes::new());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the listening socket that was inherited as standard input.
///
/// # Errors
/// Standard input is not a listening unix socket.
pub fn inherited_listener() -> io::Result<UnixListener> {
    use std::os::fd::AsFd;
    let own = io::stdin().as_fd().try_clone_to_owned()?;
    if !rustix::net::sockopt::socket_acceptconn(&own)? {
        return Err(io::Error::other("standard input is not a listening socket"));
    }
    let listener = std::os::unix::net::UnixListener::from(own);
    listener.set_nonblocking(true)?;
    let null = std::fs::File::open(Path::new("/dev/null"))?;
    rustix::stdio::dup2_stdin(&null)?;
    UnixListener::from_std(listener)
}
