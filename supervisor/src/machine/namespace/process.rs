//! A process by identity: its id, its start time and the host's boot, so that a later one with its id is another.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Which process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Process id on the host.
    pub(crate) pid: i32,
    /// Start time in clock ticks since the host's boot.
    pub(crate) started: u64,
    /// The host's boot.
    pub(crate) boot: String,
}

impl Process {
    /// The living process with this id; `None` if there is none.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()?
            .trim()
            .to_owned();
        let pid = pid.as_raw_nonzero().get();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Process {
            pid,
            started: started(&stat)?,
            boot,
        })
    }

    /// A handle on it; `None` if it has ended, even if its id lives on in another process.
    pub(crate) fn handle(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Asked after opening: what the handle is of cannot change any more.
        (Process::of(pid)? == *self).then_some(handle)
    }

    /// Kills it and waits for its end; what has ended is left alone.
    ///
    /// # Errors
    /// It may not be killed, or does not end within `within`.
    pub(crate) fn end(&self, signal: Option<Signal>, within: Duration) -> io::Result<()> {
        let Some(handle) = self.handle() else {
            return Ok(());
        };
        if let Some(signal) = signal {
            match pidfd_send_signal(&handle, signal) {
                Err(error) if error != rustix::io::Errno::SRCH => return Err(error.into()),
                _ => {}
            }
        }
        let limit = Timespec::try_from(within).map_err(|_| io::Error::other("the time is too long"))?;
        let mut ready = [PollFd::new(&handle, PollFlags::IN)];
        if poll(&mut ready, Some(&limit))? == 0 {
            return Err(io::Error::other(format!("process {} does not end", self.pid)));
        }
        Ok(())
    }
}

/// The 22nd field of `/proc/PID/stat` (proc(5)); the name in parentheses may hold anything.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Process;
    use rustix::process::{Pid, Signal, getpid};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_process_with_the_same_id_but_another_start_is_not_touched() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::of(Pid::from_child(&child)).unwrap();
        let other = Process {
            started: process.started + 1,
            ..process.clone()
        };
        other.end(Some(Signal::KILL), Duration::from_secs(5)).unwrap();
        let earlier = Process {
            boot: "another".to_owned(),
            ..process.clone()
        };
        earlier.end(Some(Signal::KILL), Duration::from_secs(5)).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        process.end(Some(Signal::KILL), Duration::from_secs(5)).unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn one_that_does_not_end_in_time_is_an_error() {
        let own = Process::of(getpid()).unwrap();
        assert!(own.end(None, Duration::from_millis(10)).is_err());
    }
}
