//! Starting a keeper, and saying what a host lacks where that fails.
use super::store::{Folder, Kept, Report, SUBCOMMAND};
use crate::machine::MachineError;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(90);
const NAMED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts the keeper of a machine and waits until the machine runs; the keeper outlives this process.
///
/// # Errors
/// Sentence saying what is wrong.
pub(super) fn keeper(folder: &Folder, keeper_exe: &Path, shim_exe: &Path) -> Result<(), String> {
    for program in [keeper_exe, shim_exe] {
        if !super::exists(program) {
            return Err(format!("the program `{}` is not there", program.display()));
        }
    }
    let log = fs::File::create(folder.path().join("keeper.log")).map_err(|e| e.to_string())?;
    let mut command = Command::new(keeper_exe);
    command
        .args([SUBCOMMAND, "keep"])
        .arg(folder.path())
        .arg(shim_exe)
        .env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command
        .spawn()
        .map_err(|error| format!("`{}` cannot be started: {error}", keeper_exe.display()))?;
    let mut line = String::new();
    let told = child
        .stdout
        .take()
        .map(|out| BufReader::new(out).read_line(&mut line));
    // Ended keepers are waited for by a thread of their own, so that none stays a zombie.
    std::thread::spawn(move || child.wait());
    match told {
        Some(Ok(_)) => {}
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("its keeper says nothing".to_owned()),
    }
    match serde_json::from_str(&line) {
        Ok(Report::Ready) => Ok(()),
        Ok(Report::Failed(what)) => Err(what),
        Err(_) => Err(format!("its keeper ended without a word{}", log_tail(folder))),
    }
}

/// Waits for a machine whose keeper another process started.
///
/// # Errors
/// Sentence saying what is wrong.
pub(super) fn await_ready(folder: &Folder) -> Result<(), String> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        match folder.kept() {
            Ok(Some(kept)) if kept.init.is_some() => return Ok(()),
            Ok(_) if Instant::now() > deadline => return Err("it is not ready after 90 s".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        if !folder.is_kept().map_err(|e| e.to_string())? {
            return Err(format!("its keeper ended{}", log_tail(folder)));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Who keeps a machine; waits for a keeper that has just begun to say so.
///
/// # Errors
/// It does not say so, or its files cannot be read.
pub(super) fn await_kept(folder: &Folder) -> io::Result<Option<Kept>> {
    let deadline = Instant::now() + NAMED_WITHIN;
    loop {
        let kept = folder.kept()?;
        if kept.is_some() || !folder.is_kept()? {
            return Ok(kept);
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("its keeper does not say who it is"));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Adds to a failed probe what this host is known to lack, and what to do.
pub(super) fn explain(error: &MachineError) -> MachineError {
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let hint = if setting("kernel/unprivileged_userns_clone").trim() == "0" {
        "unprivileged user namespaces are switched off: `sysctl -w kernel.unprivileged_userns_clone=1` (as root) \
         switches them on"
    } else if setting("user/max_user_namespaces").trim() == "0" {
        "user namespaces are limited to none: `sysctl -w user.max_user_namespaces=10000` (as root) allows them"
    } else if setting("kernel/apparmor_restrict_unprivileged_userns").trim() == "1" {
        "AppArmor restricts unprivileged user namespaces: give the program a profile with `userns,` in \
         /etc/apparmor.d, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (both as root)"
    } else {
        "namespace machines need user, mount, process and network namespaces, overlay file systems and nftables \
         of the kernel, and a /proc that is not covered in part (as in many containers)"
    };
    MachineError::Host(format!(
        "this host cannot run namespace machines: {error}; {hint}"
    ))
}

fn log_tail(folder: &Folder) -> String {
    let log = fs::read_to_string(folder.path().join("keeper.log")).unwrap_or_default();
    log.lines()
        .last()
        .map_or(String::new(), |line| format!(": {line}"))
}
