//! A stage: a folder of its own with the programs, an empty home and a state folder, used as an ordinary user.
use anyhow::Context;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Who runs the programs where the tests run as root: `nobody`.
const ORDINARY: u32 = 65534;

/// Everything of one test; taken down with all its processes when dropped.
#[derive(Debug)]
pub struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    /// Lays the programs (built by `cargo build --workspace --bins`) and the examples in a fresh folder.
    pub fn new() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("sp-").tempdir_in("/tmp")?;
        let stage = Self { dir };
        for folder in ["bin", "home", "state"] {
            std::fs::create_dir(stage.path(folder))?;
        }
        std::fs::set_permissions(stage.path("state"), std::fs::Permissions::from_mode(0o700))?;
        for program in [
            "sallyport",
            "sallyport-gateway",
            "sallyport-shim",
            "sallyport-origin",
        ] {
            let built = built(program)?;
            let here = stage.path("bin").join(program);
            if std::fs::hard_link(&built, &here).is_err() {
                std::fs::copy(&built, &here)?;
            }
        }
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples");
        copy_folder(&examples, &stage.path("examples"))?;
        if is_root() {
            give_away(stage.dir.path())?;
        }
        Ok(stage)
    }

    /// A path on the stage.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program of ours, run as an ordinary user with an empty home, knowing nothing of the tests' environment.
    pub fn command(&self, program: &str) -> Command {
        self.ordinary(&self.path("bin").join(program))
    }

    /// Any program, run likewise.
    pub fn ordinary(&self, program: &Path) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args([
                format!("--reuid={ORDINARY}"),
                format!("--regid={ORDINARY}"),
                "--clear-groups".into(),
            ]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("LANG", "C.UTF-8")
            .current_dir(self.path("home"))
            .stdin(Stdio::null());
        command
    }

    /// `sallyport ARGUMENTS --state STATE`.
    pub fn sallyport(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("sallyport");
        command.args(arguments).arg("--state").arg(self.path("state"));
        command
    }

    /// Every process that has a path of this stage in its command line.
    pub fn processes(&self) -> Vec<u32> {
        let mark = self.dir.path().to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok())
            .filter(|pid| *pid != std::process::id())
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&mark)
            })
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for pid in self.processes() {
            kill(pid);
        }
    }
}

/// A program that runs, with what it has printed so far.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Starts it; standard output and error are read as lines.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (send, lines) = mpsc::channel();
        let out = child.stdout.take().context("no standard output")?;
        let error = child.stderr.take().context("no standard error")?;
        for stream in [Box::new(out) as Box<dyn Read + Send>, Box::new(error)] {
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            child,
            lines,
            seen: Vec::new(),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `text`; the error shows everything that came instead.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> anyhow::Result<String> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("no `{text}` in {limit:?}:\n{}", self.all()),
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("ended without `{text}`:\n{}", self.all())
                }
            }
        }
    }

    /// Waits for its end and gives its status with all that it printed.
    pub fn finish(mut self, limit: Duration) -> anyhow::Result<(ExitStatus, String)> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    kill(self.pid());
                    anyhow::bail!("still running after {limit:?}:\n{}", self.all());
                }
            }
        }
        let status = self.child.wait()?;
        Ok((status, self.all()))
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM.
    pub fn terminate(&self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid())?).context("no process id")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
    }

    fn all(&self) -> String {
        self.seen.join("\n")
    }
}

/// Where cargo put a program of the workspace: beside the folder of this test's own executable.
fn built(program: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).context("no target folder")?;
    let path = folder.join(program);
    anyhow::ensure!(
        path.is_file(),
        "`{program}` is not built: run `cargo build --workspace --bins` first"
    );
    Ok(path)
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes `nobody` the owner of the stage's folders; the programs stay root's, which anyone may run.
fn give_away(folder: &Path) -> anyhow::Result<()> {
    let owner = (Some(ORDINARY), Some(ORDINARY));
    std::os::unix::fs::chown(folder, owner.0, owner.1)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != "bin" {
            give_away(&entry.path())?;
        } else if entry.file_name() != "bin" {
            std::os::unix::fs::chown(entry.path(), owner.0, owner.1)?;
        }
    }
    Ok(())
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself meanwhile: nothing is left to do then.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
