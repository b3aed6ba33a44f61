//! Reaping: the shim is the parent of every orphan in the machine, and tells ends to those who wait for them.
use crate::tree;
use rustix::process::{WaitOptions, getpid, wait};
use std::collections::HashMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

const SWEEP_ROUNDS: u32 = 200;
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// Knows which children are ours; the only place that waits for any.
#[derive(Debug, Clone, Default)]
pub struct Reaper {
    known: Arc<Mutex<HashMap<i32, oneshot::Sender<()>>>>,
}

impl Reaper {
    /// Starts reaping, as the parent of all orphans below this process.
    ///
    /// # Errors
    /// The signal handler or the subreaper attribute could not be set.
    pub fn start() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        let reaper = Reaper::default();
        let mut ended = signal(SignalKind::child())?;
        let own = reaper.clone();
        tokio::spawn(async move {
            loop {
                own.reap();
                if ended.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(reaper)
    }

    /// Starts a child whose end is told on the receiver.
    ///
    /// # Errors
    /// The child could not be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<(Child, oneshot::Receiver<()>)> {
        let mut known = self.known();
        let child = command.spawn()?;
        let (tell, told) = oneshot::channel();
        known.insert(i32::try_from(child.id()).unwrap_or(0), tell);
        Ok((child, told))
    }

    /// Ends children that nobody here started: they escaped from a command whose keeping process was killed.
    pub async fn sweep_strangers(&self) {
        let own = getpid().as_raw_nonzero().get();
        for _ in 0..SWEEP_ROUNDS {
            let strangers: Vec<i32> = {
                let known = self.known();
                tree::children(own)
                    .into_iter()
                    .filter(|pid| !known.contains_key(pid))
                    .collect()
            };
            if strangers.is_empty() {
                return;
            }
            strangers.into_iter().for_each(tree::kill_tree);
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
    }

    fn reap(&self) {
        let mut known = self.known();
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            if let Some(tell) = known.remove(&pid.as_raw_nonzero().get()) {
                // Whoever waited may have gone; then nobody needs to know.
                let _unheard = tell.send(());
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<i32, oneshot::Sender<()>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
