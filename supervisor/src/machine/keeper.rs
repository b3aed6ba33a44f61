//! The keeper: one process for each namespace machine, outside of it, which makes it and holds its listeners.
//!
//! The command line runs [`keeper_main`] for its hidden subcommand `machine-keeper` (see [`SUBCOMMAND`]), first thing in
//! `main` and before any thread or runtime is started: namespaces are entered by a process with one thread only.
//! A keeper has its own session and outlives the supervisor; when it ends, its machine ends (parent death signal).
//!
//! Three processes take part, all from this program: the keeper; `enter`, which leaves the host's namespaces and builds
//! the machine's files; and `init`, process 1 of the machine, which sets up the network and becomes the shim.
mod enter;
mod etc;
mod families;
mod init;
mod mounts;
mod net;
mod netlink;
mod rootfs;
mod users;

pub use super::namespace::store::SUBCOMMAND;

use super::namespace::pass;
use super::namespace::process::Process;
use super::namespace::store::{Folder, Handed, Kept, Report};
use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    socketpair,
};
use rustix::process::{PidfdFlags, WaitOptions, getpid, pidfd_open, set_child_subreaper, setsid, waitpid};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const STAGE_WITHIN: Duration = Duration::from_secs(60);
const BACKLOG: i32 = 16;

/// What a machine is made from, as the stages need it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Host name inside.
    pub(super) hostname: String,
    /// Whether ids are to be changed to the machine's root after mapping.
    pub(super) change_ids: bool,
    /// Host paths and the places inside where they are shown read-only.
    pub(super) binds: Vec<(String, String)>,
}

/// From a stage to the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FromStage {
    /// `enter` is in its namespaces and waits for its ids.
    Unshared,
    /// `enter` built everything and started `init` under this process id.
    Spawned(i32),
    /// `init` is done; its listeners come along: that many for TCP, the rest for DNS.
    Listening(usize),
    /// It failed.
    Failed(String),
}

/// From the keeper to a stage.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ToStage {
    /// Begin.
    Plan(Plan),
    /// The ids are mapped.
    Mapped,
    /// Become the shim; the control listener comes along.
    Start,
}

/// Runs the hidden subcommand if `arguments` (with the program's name first) name it; else there is nothing to do here.
/// Must come first in `main`, before any thread is started.
pub fn intercept(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()?.to_str() != Some(SUBCOMMAND) {
        return None;
    }
    let Err(error) = keeper_main(arguments) else {
        return Some(ExitCode::SUCCESS);
    };
    // Standard error is the machine's `keeper.log`; a full disk is told by what needs the disk.
    let _logged = writeln!(std::io::stderr(), "{error:#}");
    Some(ExitCode::FAILURE)
}

/// Runs the hidden subcommand; `arguments` are those after its name.
///
/// # Errors
/// What went wrong; it was told on standard output as well if a machine was to be made.
pub fn keeper_main(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match arguments
        .iter()
        .map(|argument| argument.to_str())
        .collect::<Vec<_>>()[..]
    {
        [Some("enter")] => enter::enter(),
        [Some("init"), ..] => init::init(&arguments[1..]),
        [Some("keep"), _, _] => {
            let [_, folder, shim] = &arguments[..] else {
                bail!("two paths are missing")
            };
            keep(Path::new(folder), Path::new(shim))
        }
        _ => bail!("`{SUBCOMMAND}` is for the supervisor's own use"),
    }
}

fn keep(folder: &Path, shim: &Path) -> anyhow::Result<()> {
    setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let folder = Folder::open(folder)?;
    let Some(lock) = folder.lock_life()? else {
        bail!("the machine is kept by another process")
    };
    let made = make(&folder, shim);
    let report = match &made {
        Ok(_) => Report::Ready,
        Err(error) => Report::Failed(format!("{error:#}")),
    };
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    // The supervisor may have died meanwhile; the machine is there for the next one.
    let _unheard = std::io::stdout().write_all(&line);
    let null = std::fs::File::create("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    let made = made?;
    made.serve()?;
    drop(lock);
    Ok(())
}

/// A running machine, as its keeper sees it.
struct Made {
    init: rustix::process::Pid,
    redirect: Vec<OwnedFd>,
    dns: Vec<OwnedFd>,
    attach: OwnedFd,
}

fn make(folder: &Folder, shim: &Path) -> anyhow::Result<Made> {
    let spec = folder.spec()?;
    let keeper = Process::of(getpid()).context("the keeper cannot be found in /proc")?;
    folder.write_kept(&Kept {
        token: spec.token.clone(),
        keeper: keeper.clone(),
        init: None,
    })?;
    let mapping = users::Mapping::choose()?;
    folder.lay_out(shim, mapping.base)?;
    let control = unix_listener(folder, "control.sock", SocketType::STREAM)?;
    let attach = unix_listener(folder, "attach.sock", SocketType::SEQPACKET)?;
    set_child_subreaper(Some(getpid()))?;
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&ours, Timeout::Recv, Some(STAGE_WITHIN))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args([SUBCOMMAND, "enter"])
        .env_clear()
        .current_dir(folder.disk());
    let enter = command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
    drop(command);
    let hostname: String = spec
        .id
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(63)
        .collect();
    let plan = Plan {
        hostname,
        change_ids: !mapping.deny_groups,
        binds: spec.binds,
    };
    pass::send(&ours, &ToStage::Plan(plan), &[])?;
    let FromStage::Unshared = next(&ours)?.0 else {
        bail!("the stage `enter` is out of step")
    };
    mapping
        .write(enter.id())
        .context("the user namespace got no ids")?;
    pass::send(&ours, &ToStage::Mapped, &[])?;
    let (init, count, mut redirect) = built(&ours)?;
    reap(rustix::process::Pid::from_child(&enter))?;
    let dns = redirect.split_off(count.min(redirect.len()));
    pass::send(&ours, &ToStage::Start, &[control.as_fd()])?;
    drop(control);
    // The socket closes when `init` becomes the shim; until then it can only say that it failed.
    match pass::receive::<FromStage>(&ours) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Ok((FromStage::Failed(what), _)) => bail!(what),
        Ok(_) => bail!("the stage `init` is out of step"),
        Err(error) => return Err(error).context("the stage `init` does not start the shim"),
    }
    let init_process = Process::of(init).context("the machine ended as soon as it began")?;
    folder.write_kept(&Kept {
        token: spec.token,
        keeper,
        init: Some(init_process),
    })?;
    Ok(Made {
        init,
        redirect,
        dns,
        attach,
    })
}

impl Made {
    /// Hands the listeners to whoever asks until the machine ends.
    fn serve(&self) -> anyhow::Result<()> {
        let init = pidfd_open(self.init, PidfdFlags::empty())?;
        loop {
            let mut ready = [
                PollFd::new(&self.attach, PollFlags::IN),
                PollFd::new(&init, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [asked, ended] = ready.map(|descriptor| !descriptor.revents().is_empty());
            if ended {
                return reap(self.init);
            }
            if asked {
                // Who asked may be gone; the next one is served all the same.
                let _served = self.hand_over();
            }
        }
    }

    fn hand_over(&self) -> anyhow::Result<()> {
        let peer = accept_with(&self.attach, SocketFlags::CLOEXEC)?;
        if socket_peercred(&peer)?.uid != rustix::process::geteuid() {
            bail!("another user asks");
        }
        set_socket_timeout(&peer, Timeout::Send, Some(Duration::from_secs(5)))?;
        let files: Vec<BorrowedFd<'_>> = self.redirect.iter().chain(&self.dns).map(AsFd::as_fd).collect();
        Ok(pass::send(
            &peer,
            &Handed {
                redirect: self.redirect.len(),
            },
            &files,
        )?)
    }
}

/// Waits for both stages to be done; `init` may be heard before `enter` says that it started it.
fn built(stages: &OwnedFd) -> anyhow::Result<(rustix::process::Pid, usize, Vec<OwnedFd>)> {
    let (mut init, mut listening) = (None, None);
    loop {
        match (next(stages)?, init, listening.take()) {
            ((FromStage::Spawned(pid), _), None, already) => {
                init =
                    Some(rustix::process::Pid::from_raw(pid).context("the stage `enter` names no process")?);
                listening = already;
            }
            ((FromStage::Listening(count), files), _, None) => listening = Some((count, files)),
            _ => bail!("the stages are out of step"),
        }
        if let (Some(init), Some((count, files))) = (init, &mut listening) {
            return Ok((init, *count, std::mem::take(files)));
        }
    }
}

fn next(from: &OwnedFd) -> anyhow::Result<(FromStage, Vec<OwnedFd>)> {
    match pass::receive::<FromStage>(from) {
        Ok((FromStage::Failed(what), _)) => Err(anyhow!(what)),
        Ok(message) => Ok(message),
        Err(error) => Err(error).context("a stage ended without a word (see `keeper.log`)"),
    }
}

fn reap(pid: rustix::process::Pid) -> anyhow::Result<()> {
    while let Err(error) = waitpid(Some(pid), WaitOptions::empty()) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(())
}

fn unix_listener(folder: &Folder, name: &str, kind: SocketType) -> anyhow::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let path: PathBuf = folder.short(name);
    bind(&socket, &SocketAddrUnix::new(&path)?)
        .with_context(|| format!("cannot make the socket `{name}`"))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
