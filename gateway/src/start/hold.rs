//! The state folder, held by one gateway at a time.
use super::fault::StartError;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Holds the state folder for one gateway; let go when dropped, and by the system when the process dies.
#[derive(Debug)]
pub struct Held {
    _lock: File,
}

/// Makes the state folder if it is not there.
pub fn prepare(state: &Path) -> Result<(), StartError> {
    let fail = |error| StartError::State {
        path: state.to_owned(),
        error,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .map_err(fail)
}

/// Takes the state folder; fails where another gateway has it.
pub fn hold(state: &Path) -> Result<Held, StartError> {
    let fail = |error| StartError::State {
        path: state.to_owned(),
        error,
    };
    let mut lock = open_lock(state).map_err(fail)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(StartError::Running {
            path: state.to_owned(),
            pid: written_pid(&mut lock),
        });
    }
    let write = |lock: &mut File| {
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(std::process::id().to_string().as_bytes())
    };
    write(&mut lock).map_err(fail)?;
    Ok(Held { _lock: lock })
}

/// Tells a gateway that runs on this state folder to read all values anew; whether there is one.
pub fn tell_running(state: &Path) -> Result<bool, StartError> {
    let fail = |error: io::Error| StartError::State {
        path: state.to_owned(),
        error,
    };
    let mut lock = open_lock(state).map_err(fail)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok(false);
    }
    let pid = written_pid(&mut lock).parse().ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Ok(false) };
    kill_process(pid, Signal::HUP).map_err(|error| fail(error.into()))?;
    Ok(true)
}

fn open_lock(state: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600);
    options.open(state.join("gateway.lock"))
}

fn written_pid(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.take(20).read_to_string(&mut text) {
        Ok(_) if !text.is_empty() => text,
        _ => "unknown".to_owned(),
    }
}
