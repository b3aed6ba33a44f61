//! The process between the shim and a command: whatever the command starts stays below it, orphans too.
//!
//! It is the subreaper of one command. Its standard input is a socket to the shim on which it tells the end of the
//! command itself; it exits when the last descendant is gone, so that its own end means "nothing is left".
use crate::tree::kill_descendants;
use crate::wire::ExecEnd;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, setsid, wait};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Runs `argv` and stays until all its descendants are gone.
///
/// # Errors
/// Only what concerns this process; that the command cannot be started is told to the shim.
pub fn keep(argv: &[String]) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    setsid()?;
    let to_shim = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    watch(to_shim.try_clone()?)?;
    let Some((program, args)) = argv.split_first() else {
        return tell(
            &to_shim,
            &ExecEnd::NotStarted {
                error: "no program is named".to_owned(),
            },
        );
    };
    let started = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let main = match started {
        Ok(child) => i32::try_from(child.id()).unwrap_or(0),
        Err(error) => {
            return tell(
                &to_shim,
                &ExecEnd::NotStarted {
                    error: format!("`{program}`: {error}"),
                },
            );
        }
    };
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                let end = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => ExecEnd::Code { code },
                    (None, signal) => ExecEnd::Signal {
                        signal: signal.unwrap_or(0),
                    },
                };
                tell(&to_shim, &end)?;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends everything when the shim is gone: nobody is left who could.
fn watch(mut from_shim: UnixStream) -> io::Result<()> {
    let own = Pid::as_raw(Some(getpid()));
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || {
            let mut byte = [0];
            while matches!(from_shim.read(&mut byte), Ok(n) if n > 0) {}
            while kill_descendants(own) > 0 {
                std::thread::yield_now();
            }
        })
        .map(drop)
}

fn tell(mut to_shim: &UnixStream, end: &ExecEnd) -> io::Result<()> {
    let mut line = serde_json::to_vec(end)?;
    line.push(b'\n');
    to_shim.write_all(&line)
}
