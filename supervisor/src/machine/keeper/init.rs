//! Process 1 of the machine: network, the last mounts, leaving the host's files, and becoming the shim.
use super::{FromStage, Plan, ToStage, families, mounts, net, rootfs};
use crate::machine::namespace::pass;
use anyhow::{Context, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the machine's root may do in its own namespaces: what programs need, and nothing that changes mounts,
/// network or kernel. Without `SYS_ADMIN` it cannot make read-only mounts writable.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP);
/// Highest capability that a kernel may know.
const CAPABILITIES: u32 = 63;

/// Runs the stage; `arguments` are the plan and the numbers of the opened sources.
pub(super) fn init(arguments: &[OsString]) -> anyhow::Result<()> {
    // Standard input becomes the control listener, so the socket to the keeper moves; it closes with `exec`.
    let keeper: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let done = run(keeper.as_fd(), arguments);
    if let Err(error) = &done {
        pass::send(&keeper, &FromStage::Failed(format!("{error:#}")), &[])?;
    }
    done
}

fn run(keeper: BorrowedFd<'_>, arguments: &[OsString]) -> anyhow::Result<()> {
    let Some((plan, sources)) = arguments.split_first() else {
        bail!("no plan came")
    };
    let plan: Plan = serde_json::from_str(&plan.to_string_lossy())?;
    rustix::system::sethostname(plan.hostname.as_bytes()).context("cannot set the host name")?;
    let sockets = net::set_up()?;
    mounts::proc("root/proc")?;
    mounts::pivot("root")?;
    for (source, (host, inside)) in sources.iter().zip(&plan.binds) {
        let source = format!("/proc/self/fd/{}", source.to_string_lossy());
        mounts::bind_read_only(&source, inside)
            .with_context(|| format!("cannot show `{host}` at `{inside}`"))?;
    }
    mounts::leave_old()?;
    let files: Vec<BorrowedFd<'_>> = sockets
        .redirect
        .iter()
        .chain(&sockets.dns)
        .map(AsFd::as_fd)
        .collect();
    pass::send(keeper, &FromStage::Listening(sockets.redirect.len()), &files)?;
    let (ToStage::Start, control) = pass::receive(keeper)? else {
        bail!("no start came")
    };
    let Some(control) = control.first() else {
        bail!("no control listener came")
    };
    // Only now: until the stage before this one had ended, the signal would have come from there.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    become_shim(control)
}

fn become_shim(control: &OwnedFd) -> anyhow::Result<()> {
    fs::create_dir_all("/var/log/sallyport")?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open("/var/log/sallyport/shim.log")?;
    rustix::stdio::dup2_stdin(control)?;
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut command = Command::new(rootfs::SHIM);
    command
        .arg("serve")
        .env_clear()
        .envs(rootfs::ENVIRONMENT.iter().copied());
    command.current_dir(rootfs::HOME);
    rustix::thread::set_no_new_privs(true)?;
    families::fence().context("cannot fence off what no namespace fences")?;
    drop_capabilities().context("cannot give up capabilities")?;
    let error = command.exec();
    Err(error).context("cannot start the shim in the machine (it must be executable for everybody)")
}

fn drop_capabilities() -> rustix::io::Result<()> {
    for bit in 0..=CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if KEPT.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel does not know that many.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: KEPT,
            permitted: KEPT,
            inheritable: none,
        },
    )
}
