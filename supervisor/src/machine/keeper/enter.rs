//! The stage that leaves the host's namespaces, builds the machine's files and starts `init`.
use super::{FromStage, Plan, SUBCOMMAND, ToStage, rootfs};
use crate::machine::namespace::pass;
use anyhow::{Context, bail};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Gid, Uid};
use rustix::thread::UnshareFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

/// Runs the stage: standard input is the socket to the keeper, the working directory the machine's disk.
pub(super) fn enter() -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    let keeper = stdin.as_fd();
    let done = run(keeper);
    if let Err(error) = &done {
        pass::send(keeper, &FromStage::Failed(format!("{error:#}")), &[])?;
    }
    done
}

fn run(keeper: BorrowedFd<'_>) -> anyhow::Result<()> {
    let (ToStage::Plan(plan), _) = pass::receive(keeper)? else {
        bail!("no plan came")
    };
    unshare()?;
    // Opened with the ids of before, which may reach what the machine's root may not.
    let sources = open_sources(&plan)?;
    pass::send(keeper, &FromStage::Unshared, &[])?;
    let (ToStage::Mapped, _) = pass::receive(keeper)? else {
        bail!("no ids came")
    };
    if plan.change_ids {
        change_ids().context("cannot become the machine's root")?;
    }
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .context("cannot make mounts private")?;
    rootfs::build(&plan)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args([SUBCOMMAND, "init", &serde_json::to_string(&plan)?])
        .env_clear();
    for source in &sources {
        rustix::io::fcntl_setfd(source, rustix::io::FdFlags::empty())?;
        command.arg(source.as_raw_fd().to_string());
    }
    let own = keeper.try_clone_to_owned()?;
    let init = command.stdin(Stdio::from(own)).spawn().context(
        "cannot start process 1 of the machine (the program must be readable and executable for everybody)",
    )?;
    Ok(pass::send(
        keeper,
        &FromStage::Spawned(i32::try_from(init.id())?),
        &[],
    )?)
}

#[expect(
    deprecated,
    reason = "unsafe only with FILES, which is not asked for; this process has one thread"
)]
fn unshare() -> anyhow::Result<()> {
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWCGROUP;
    rustix::thread::unshare(all).context("cannot make user, mount, process and network namespaces")
}

fn open_sources(plan: &Plan) -> anyhow::Result<Vec<OwnedFd>> {
    let open = |path: &String| {
        openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("cannot open `{path}`, which the machine is to see"))
    };
    plan.binds.iter().map(|(host, _)| open(host)).collect()
}

/// Only this thread's ids change, and this process has no other.
fn change_ids() -> anyhow::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(rustix::thread::set_thread_res_uid(
        Uid::ROOT,
        Uid::ROOT,
        Uid::ROOT,
    )?)
}
