//! Keeps the gateway running: starts it or adopts the one that an earlier supervisor left, and starts it anew when
//! it ends. It outlives a killed supervisor: sessions and their traffic go on meanwhile.
use super::process::Process;
use crate::gateway::Door;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the gateway may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Size after which its log is moved away at its next start, in bytes.
const LOG_LIMIT: u64 = 16 << 20;
/// Lines of its log that an error shows.
const TAIL_LINES: usize = 6;

/// How the gateway is started.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    /// Where its output goes.
    pub(super) log: PathBuf,
    /// Where it is noted how the running one was started.
    pub(super) stamp: PathBuf,
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// It could not be started, or ended at once.
    #[error("the gateway does not start: {why}")]
    Start {
        /// Why, with the end of its log.
        why: String,
    },
    /// A file beside it cannot be used.
    #[error("`{}` cannot be written: {source}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The task that keeps the gateway running.
#[derive(Debug)]
pub(super) struct Keeper {
    closing: CancellationToken,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Gives a gateway that answers, and keeps it so.
    pub(super) async fn start(launch: Launch, door: Arc<dyn Door>) -> Result<Self, KeeperError> {
        let gateway = Gateway { launch, door };
        let running = gateway.ensure().await?;
        let closing = CancellationToken::new();
        let task = tokio::spawn(gateway.keep(running, closing.clone()));
        Ok(Self { closing, task })
    }

    /// Ends the gateway in order.
    pub(super) async fn stop(self) {
        self.closing.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the gateway's keeper broke off");
        }
    }
}

struct Gateway {
    launch: Launch,
    door: Arc<dyn Door>,
}

impl Gateway {
    async fn keep(self, mut running: Process, closing: CancellationToken) {
        loop {
            tokio::select! {
                () = closing.cancelled() => return running.end().await,
                how = running.ended() => tracing::error!(pid = running.pid(), how, "the gateway ended; starting it anew"),
            }
            running = match self.start_anew(&closing).await {
                Some(again) => again,
                None => return,
            };
        }
    }

    /// Tries until it runs, ever more slowly, or until there is to be none. An attempt is never broken off: it would
    /// leave a gateway that nobody ends.
    async fn start_anew(&self, closing: &CancellationToken) -> Option<Process> {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(Duration::from_secs(15))
            .with_jitter()
            .without_max_times();
        let mut pauses = pauses.build();
        loop {
            match self.ensure().await {
                Ok(running) => return Some(running),
                Err(error) => tracing::error!(%error, "there is no gateway: nothing gets out; trying again"),
            }
            let pause = tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(15)));
            tokio::select! {
                () = closing.cancelled() => return None,
                () = pause => {}
            }
        }
    }

    /// Adopts the gateway that runs, where it was started as we would start it; else starts one.
    async fn ensure(&self) -> Result<Process, KeeperError> {
        let stamp = self.stamp();
        if let Ok(health) = self.door.health().await
            && let Ok(left) = Process::adopt(health.pid)
        {
            if std::fs::read_to_string(&self.launch.stamp).is_ok_and(|known| known == stamp) {
                tracing::info!(pid = left.pid(), "the gateway runs already: going on with it");
                return Ok(left);
            }
            tracing::info!(
                pid = left.pid(),
                "the running gateway is another one than ours: replacing it"
            );
            left.end().await;
        }
        let running = self.spawn()?;
        let ready = self.ready(running).await?;
        match self.write_stamp(&stamp) {
            Ok(()) => Ok(ready),
            Err(error) => {
                ready.end().await;
                Err(error)
            }
        }
    }

    fn spawn(&self) -> Result<Process, KeeperError> {
        let failed = |error: std::io::Error| KeeperError::Start {
            why: format!("`{}`: {error}", self.launch.program.display()),
        };
        let log = self.log()?;
        let other = log.try_clone().map_err(failed)?;
        let child = tokio::process::Command::new(&self.launch.program)
            .args(&self.launch.arguments)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(other)
            // Signals from the terminal are for us: we end it in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Process::child(child).map_err(failed)
    }

    /// Waits until it answers, or has ended.
    async fn ready(&self, mut running: Process) -> Result<Process, KeeperError> {
        let pid = running.pid();
        let why = tokio::select! {
            how = running.ended() => format!("it ended at once ({how})"),
            answered = tokio::time::timeout(READY_WITHIN, self.answers(pid)) => match answered {
                Ok(()) => return Ok(running),
                Err(_) => format!("no answer within {} s", READY_WITHIN.as_secs()),
            },
        };
        running.end().await;
        Err(KeeperError::Start {
            why: why + &self.tail(),
        })
    }

    async fn answers(&self, pid: u32) {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(20))
            .with_max_delay(Duration::from_millis(500))
            .without_max_times();
        for pause in pauses.build() {
            if self.door.health().await.is_ok_and(|health| health.pid == pid) {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn log(&self) -> Result<File, KeeperError> {
        let path = &self.launch.log;
        if std::fs::metadata(path).is_ok_and(|facts| facts.len() > LOG_LIMIT)
            && let Err(error) = std::fs::rename(path, path.with_extension("log.old"))
        {
            tracing::warn!(%error, "the gateway's log cannot be moved away");
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options.open(path).map_err(|source| KeeperError::File {
            path: path.clone(),
            source,
        })
    }

    fn tail(&self) -> String {
        let text = std::fs::read(&self.launch.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(TAIL_LINES).collect();
        let shown: Vec<String> = lines.iter().rev().map(|line| format!("\n  {line}")).collect();
        format!(
            "; its log `{}` ends:{}",
            self.launch.log.display(),
            shown.concat()
        )
    }

    /// Tells one way of starting from another: program with its age, and arguments.
    fn stamp(&self) -> String {
        let age = std::fs::metadata(&self.launch.program)
            .map(|facts| (facts.mtime(), facts.mtime_nsec(), facts.size()));
        format!(
            "{:?} {:?} {:?}\n",
            self.launch.program,
            age.ok(),
            self.launch.arguments
        )
    }

    fn write_stamp(&self, stamp: &str) -> Result<(), KeeperError> {
        let path = &self.launch.stamp;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(path)
            .and_then(|mut file| file.write_all(stamp.as_bytes()))
            .map_err(|source| KeeperError::File {
                path: path.clone(),
                source,
            })
    }
}

#[cfg(test)]
mod tests;
