//! Commands that the agent declared to be background jobs: they live on until the machine's end.
use crate::reap::Reaper;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Starts background jobs.
#[derive(Debug, Clone)]
pub struct Background {
    reaper: Reaper,
    helper: PathBuf,
    outputs: PathBuf,
    count: Arc<AtomicU64>,
}

impl Background {
    /// `helper` is this program, which keeps each job; `outputs` the folder for their output.
    pub fn new(reaper: Reaper, helper: PathBuf, outputs: PathBuf) -> Self {
        Background {
            reaper,
            helper,
            outputs,
            count: Arc::default(),
        }
    }

    /// Starts a job; answers its keeping process and the file with its output.
    ///
    /// # Errors
    /// Sentence saying what is wrong.
    pub fn start(
        &self,
        argv: &[String],
        cwd: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<(u32, String), String> {
        let log = self.outputs.join(format!(
            "background-{}.log",
            self.count.fetch_add(1, Ordering::Relaxed) + 1
        ));
        let told = log.display().to_string();
        std::fs::create_dir_all(&self.outputs).map_err(|e| format!("`{}`: {e}", self.outputs.display()))?;
        let file = File::create(&log).map_err(|e| format!("`{told}`: {e}"))?;
        let error_file = file.try_clone().map_err(|e| e.to_string())?;
        let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
        let mut command = Command::new(&self.helper);
        command
            .arg("keep")
            .arg("--")
            .args(argv)
            .current_dir(cwd)
            .env_clear()
            .envs(env);
        command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(file)
            .stderr(error_file);
        let (child, gone) = self
            .reaper
            .spawn(&mut command)
            .map_err(|e| format!("cannot start: {e}"))?;
        tokio::spawn(async move {
            let _ended = gone.await;
            // Open until now: the keeping process ends everything when it sees this end closed.
            drop(ours);
        });
        Ok((child.id(), told))
    }
}
