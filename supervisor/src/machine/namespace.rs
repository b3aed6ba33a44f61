//! The driver of namespace machines: processes of this host with nothing of it but its programs, and no network but
//! loopback. Needs no root. Each machine has a keeper process (see [`keeper`](super::keeper)) and a folder.
//!
//! What it does not do yet: limit a machine's memory, processor or disk; keep a machine over a reboot of the host.
pub(crate) mod pass;
pub(crate) mod process;
mod remove;
mod start;
pub(crate) mod store;

use super::channel::{Connect, ConnectError, ShimClient};
use super::{
    Abilities, Attach, Attachment, Driver, Machine, MachineError, MachineRecord, MachineSpec, Status,
};
use async_trait::async_trait;
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Signal;
use serde_json::json;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Folder, Handed, Spec};
use tokio::net::UnixStream;

const KIND: &str = "namespace";
/// How long a killed keeper, and then its machine, may take to end.
const END_WITHIN: Duration = Duration::from_secs(20);
/// How long a keeper may take to see its machine's end before it is killed too.
const KEEPER_WITHIN: Duration = Duration::from_secs(5);
const ATTACH_WITHIN: Duration = Duration::from_secs(10);
/// Folder beside the machines' own for locks, drafts and what is being removed.
const ASIDE: &str = ".aside";
const ID_BYTES: usize = 100;

/// The driver. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NamespaceDriver {
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    state: PathBuf,
    keeper_exe: PathBuf,
    shim_exe: PathBuf,
}

impl NamespaceDriver {
    /// A driver whose machines live below `state_dir`; `keeper_exe` is the program with the hidden subcommand
    /// [`SUBCOMMAND`](super::keeper::SUBCOMMAND), `shim_exe` the shim, which is copied into each machine.
    pub fn new(state_dir: PathBuf, keeper_exe: PathBuf, shim_exe: PathBuf) -> Self {
        NamespaceDriver {
            place: Arc::new(Place {
                state: state_dir,
                keeper_exe,
                shim_exe,
            }),
        }
    }

    /// Runs blocking work on the machines' files.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<T, MachineError> + Send + 'static,
    ) -> Result<T, MachineError> {
        let place = Arc::clone(&self.place);
        let done = tokio::task::spawn_blocking(move || work(&place)).await;
        done.unwrap_or_else(|error| {
            Err(MachineError::Host(format!(
                "a machine operation broke off: {error}"
            )))
        })
    }
}

#[async_trait]
impl Attach for NamespaceDriver {
    async fn attach(&self, record: &MachineRecord) -> Result<Attachment, MachineError> {
        let record = record.clone();
        self.blocking(move |place| place.attach(&record)).await
    }
}

#[async_trait]
impl Driver for NamespaceDriver {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    async fn probe(&self) -> Result<(), MachineError> {
        let id = format!("probe-{}", uuid::Uuid::now_v7().simple());
        let made = self
            .create(&MachineSpec {
                id: id.clone(),
                binds: Vec::new(),
            })
            .await;
        self.blocking(move |place| place.destroy(&id, None)).await?;
        made.map(drop).map_err(|error| start::explain(&error))
    }

    async fn create(&self, spec: &MachineSpec) -> Result<MachineRecord, MachineError> {
        let spec = spec.clone();
        self.blocking(move |place| place.create(&spec)).await
    }

    async fn connect(&self, record: &MachineRecord) -> Result<Machine, MachineError> {
        if self.status(record).await? == Status::Gone {
            return Err(MachineError::Gone(record.id.clone()));
        }
        let dial = Dial {
            driver: self.clone(),
            record: record.clone(),
        };
        Ok(ShimClient::start(&record.id, dial))
    }

    async fn status(&self, record: &MachineRecord) -> Result<Status, MachineError> {
        let record = record.clone();
        self.blocking(move |place| Ok(place.living(&record)?.map_or(Status::Gone, |_| Status::Running)))
            .await
    }

    async fn destroy(&self, record: &MachineRecord) -> Result<(), MachineError> {
        let (id, token) = (record.id.clone(), token(record));
        self.blocking(move |place| place.destroy(&id, token.as_deref()))
            .await
    }

    async fn list(&self) -> Result<Vec<MachineRecord>, MachineError> {
        self.blocking(Place::list).await
    }
}

/// Connects to a machine's shim.
struct Dial {
    driver: NamespaceDriver,
    record: MachineRecord,
}

#[async_trait]
impl Connect for Dial {
    async fn connect(&self) -> Result<UnixStream, ConnectError> {
        let record = self.record.clone();
        let folder = match self.driver.blocking(move |place| place.living(&record)).await {
            Ok(Some(folder)) => folder,
            Ok(None) => return Err(ConnectError::Gone),
            Err(error) => return Err(ConnectError::Passing(error.to_string())),
        };
        let connected = UnixStream::connect(folder.short("control.sock")).await;
        connected.map_err(|error| ConnectError::Passing(error.to_string()))
    }
}

impl Place {
    /// Makes the machine, or finds it running with the same spec.
    fn create(&self, spec: &MachineSpec) -> Result<MachineRecord, MachineError> {
        let id = checked(&spec.id)?;
        let _lock = self.lock(id)?;
        if let Some(folder) = self.folder(id)? {
            if folder.is_kept().map_err(|e| host(id, &e))? {
                start::await_ready(&folder).map_err(|what| passing(id, what))?;
                let found = folder.spec().map_err(|e| host(id, &e))?;
                if found.binds != spec.binds {
                    return Err(MachineError::Call(format!(
                        "machine `{id}` exists and is made differently"
                    )));
                }
                return record(&folder).map_err(|e| host(id, &e));
            }
            self.remove(id, &folder).map_err(|e| host(id, &e))?;
        }
        let fresh = uuid::Uuid::now_v7().simple().to_string();
        let draft = self.aside(&format!("{id}.draft-{fresh}"));
        let made = Spec {
            id: id.to_owned(),
            token: fresh,
            binds: spec.binds.clone(),
        };
        let folder = Folder::make(&self.state.join(id), &draft, &made).map_err(|e| host(id, &e))?;
        let started = start::keeper(&folder, &self.keeper_exe, &self.shim_exe);
        started.map_err(|what| MachineError::Host(format!("machine `{id}` cannot be made: {what}")))?;
        record(&folder).map_err(|e| host(id, &e))
    }

    /// The folder of a running machine; `None` if it is gone, or another one has its id now.
    fn living(&self, wanted: &MachineRecord) -> Result<Option<Folder>, MachineError> {
        let id = checked(&wanted.id)?;
        let Some(folder) = self.folder(id)? else {
            return Ok(None);
        };
        let same = || Ok(same(&folder, token(wanted).as_deref())? && folder.is_kept()?);
        if same().map_err(|e: io::Error| host(id, &e))? {
            Ok(Some(folder))
        } else {
            Ok(None)
        }
    }

    fn attach(&self, record: &MachineRecord) -> Result<Attachment, MachineError> {
        let id = &record.id;
        let Some(folder) = self.living(record)? else {
            return Err(MachineError::Gone(id.clone()));
        };
        let ask = || -> io::Result<Attachment> {
            let socket = socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            set_socket_timeout(&socket, Timeout::Recv, Some(ATTACH_WITHIN))?;
            connect(&socket, &SocketAddrUnix::new(folder.short("attach.sock"))?)?;
            let (Handed { redirect: count }, mut redirect) = pass::receive(&socket)?;
            let dns = redirect.split_off(count.min(redirect.len()));
            if redirect.is_empty() || dns.is_empty() {
                return Err(io::Error::other("no listeners came"));
            }
            Ok(Attachment { redirect, dns })
        };
        ask().map_err(|error| {
            passing(
                id,
                format!("its keeper does not hand over the listeners: {error}"),
            )
        })
    }

    /// Ends and removes a machine; with a token, only the one that has it.
    fn destroy(&self, id: &str, token: Option<&str>) -> Result<(), MachineError> {
        let id = checked(id)?;
        let _lock = self.lock(id)?;
        let Some(folder) = self.folder(id)? else {
            return Ok(());
        };
        let ours = same(&folder, token).map_err(|e| host(id, &e))?;
        if ours {
            self.remove(id, &folder).map_err(|e| host(id, &e))
        } else {
            Ok(())
        }
    }

    /// Ends the machine and its keeper, and removes the folder. The id's lock is held.
    fn remove(&self, id: &str, folder: &Folder) -> io::Result<()> {
        if let Some(kept) = start::await_kept(folder)? {
            // Process 1 first: its keeper is then there to see it end, and ends itself.
            if let Some(init) = kept.init {
                init.end(Some(Signal::KILL), END_WITHIN)?;
                if kept.keeper.end(None, KEEPER_WITHIN).is_ok() {
                    return self.discard(id, folder);
                }
            }
            kept.keeper.end(Some(Signal::KILL), END_WITHIN)?;
        }
        self.discard(id, folder)
    }

    /// Removes a folder that no process uses any more; whole or, after a crash, by the next [`Place::list`].
    fn discard(&self, id: &str, folder: &Folder) -> io::Result<()> {
        let aside = self.aside(&format!("{id}.removed-{}", uuid::Uuid::now_v7().simple()));
        fs::rename(folder.path(), &aside)?;
        remove::remove(&aside)
    }

    /// Every machine here, running or not; what an earlier removal left half done is removed.
    fn list(&self) -> Result<Vec<MachineRecord>, MachineError> {
        let broken = |error: io::Error| MachineError::Host(format!("`{}`: {error}", self.state.display()));
        self.prepare().map_err(broken)?;
        for entry in fs::read_dir(self.state.join(ASIDE)).map_err(broken)? {
            let path = entry.map_err(broken)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((id, _)) = name
                .rsplit_once(".removed-")
                .or_else(|| name.rsplit_once(".draft-"))
            else {
                continue;
            };
            let _lock = self.lock(id)?;
            remove::remove(&path).map_err(broken)?;
        }
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.state).map_err(broken)? {
            let name = entry.map_err(broken)?.file_name();
            let Some(id) = name.to_str().filter(|id| checked(id).is_ok()) else {
                continue;
            };
            if let Some(folder) = self.folder(id)? {
                records.push(record(&folder).map_err(|e| host(id, &e))?);
            }
        }
        Ok(records)
    }

    fn folder(&self, id: &str) -> Result<Option<Folder>, MachineError> {
        match Folder::open(&self.state.join(id)) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(host(id, &error)),
        }
    }

    /// Keeps others, in this process or another, from making or removing the same machine.
    fn lock(&self, id: &str) -> Result<File, MachineError> {
        let take = || -> io::Result<File> {
            self.prepare()?;
            let path = self.aside(&format!("{id}.lock"));
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        take().map_err(|error| host(id, &error))
    }

    fn prepare(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.state.join(ASIDE))
    }

    fn aside(&self, name: &str) -> PathBuf {
        self.state.join(ASIDE).join(name)
    }
}

/// An id names a folder, so it must be a plain name.
fn checked(id: &str) -> Result<&str, MachineError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if id.is_empty() || id.len() > ID_BYTES || id.starts_with('.') || !id.bytes().all(plain) {
        return Err(MachineError::Call(format!(
            "`{}` cannot be a machine's id: use letters, digits, `-`, `_` and `.`, {ID_BYTES} at most",
            id.escape_debug()
        )));
    }
    Ok(id)
}

/// The record of a folder; the folder's name is the id, whatever lies in it.
fn record(folder: &Folder) -> io::Result<MachineRecord> {
    let spec = folder.spec()?;
    let kept = folder.kept()?;
    let facts = json!({ "token": spec.token, "folder": folder.path(), "kept": kept });
    let id = folder
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(MachineRecord {
        id,
        driver: KIND.to_owned(),
        facts,
    })
}

fn token(record: &MachineRecord) -> Option<String> {
    record
        .facts
        .get("token")
        .and_then(|token| token.as_str())
        .map(str::to_owned)
}

/// Whether the folder is of the machine with this token; without one, any is.
fn same(folder: &Folder, token: Option<&str>) -> io::Result<bool> {
    token.map_or(Ok(true), |token| Ok(folder.spec()?.token == token))
}

fn host(id: &str, error: &io::Error) -> MachineError {
    MachineError::Host(format!("machine `{id}`: {error}"))
}

fn passing(id: &str, what: String) -> MachineError {
    MachineError::Passing {
        id: id.to_owned(),
        what,
    }
}

/// Whether a path is there, for messages.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
