//! A process by its descriptor, ours or one that an earlier supervisor left: waited for and ended without racing
//! against a reused process id.
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;

/// How long a process may take to end in order before it is killed.
const END_WITHIN: Duration = Duration::from_secs(15);

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    handle: AsyncFd<OwnedFd>,
    /// Where it is our own child: it must be waited for.
    child: Option<Child>,
}

impl Process {
    /// One that is not our child.
    pub(super) fn adopt(pid: u32) -> std::io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
        let handle = pidfd_open(raw, PidfdFlags::NONBLOCK)?;
        Ok(Self {
            pid,
            handle: watched(handle)?,
            child: None,
        })
    }

    /// Our own child.
    pub(super) fn child(child: Child) -> std::io::Result<Self> {
        let pid = child
            .id()
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?;
        Ok(Self {
            child: Some(child),
            ..Self::adopt(pid)?
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it has ended; says how, where that can be known.
    pub(super) async fn ended(&mut self) -> String {
        let told = match &mut self.child {
            Some(child) => child.wait().await.map(|status| status.to_string()),
            None => self.handle.readable().await.map(|_| "not by us".to_owned()),
        };
        told.unwrap_or_else(|error| error.to_string())
    }

    /// Asks it to end, and kills it where it does not within 15 s.
    pub(super) async fn end(mut self) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(END_WITHIN, self.ended()).await.is_err() {
            tracing::warn!(pid = self.pid, "it does not end: killing it");
            self.signal(Signal::KILL);
            self.ended().await;
        }
    }

    fn signal(&self, signal: Signal) {
        match pidfd_send_signal(self.handle.get_ref(), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tracing::warn!(pid = self.pid, %error, "the process cannot be signalled"),
        }
    }
}

#[expect(
    deprecated,
    reason = "it is deprecated for types whose descriptor may change while it is watched; an `OwnedFd` keeps its own, and the named successor is an unsafe function"
)]
fn watched(handle: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}
