//! One command from its start to the end of its last descendant.
use super::{Call, Commands, GRACE_MS, Running};
use crate::tree::{kill_descendants, kill_tree, signal_descendants};
use crate::wire::{ExecEnd, Stream};
use bytes::Bytes;
use rustix::process::Signal;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long descendants may outlive a command that ended by itself; then they are ended too.
const LINGER: Duration = Duration::from_millis(500);
/// How long output is waited for when nothing is left that could write it.
const DRAIN: Duration = Duration::from_secs(1);
/// Pause between two rounds of killing, when processes are made faster than they are found.
const KILL_ROUND: Duration = Duration::from_millis(20);
/// Rounds of killing before the keeping process itself is taken to be broken.
const KILL_ROUNDS: u32 = 250;
const READ_BYTES: usize = 16 * 1024;

/// A started command.
struct Process {
    keeper: i32,
    report: UnixStream,
    gone: oneshot::Receiver<()>,
    readers: Vec<JoinHandle<()>>,
}

pub(super) async fn run(commands: Commands, running: Arc<Running>, call: Call) {
    let end = match start(&commands, &running, &call) {
        Ok(process) => process.watch(&commands, &running, call.timeout_ms).await,
        Err(error) => ExecEnd::NotStarted { error },
    };
    commands.ended(&running, end);
}

fn start(commands: &Commands, running: &Arc<Running>, call: &Call) -> Result<Process, String> {
    if !std::path::Path::new(&call.cwd).is_dir() {
        return Err(format!(
            "the working directory `{}` is not a folder in the machine",
            call.cwd
        ));
    }
    let (ours, theirs) = StdUnixStream::pair().map_err(|e| e.to_string())?;
    ours.set_nonblocking(true).map_err(|e| e.to_string())?;
    let mut command = Command::new(&commands.helper);
    command.arg("keep").arg("--").args(&call.argv);
    command.current_dir(&call.cwd).env_clear().envs(&call.env);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = commands.reaper.spawn(&mut command);
    // The command holds the other end of the socket; only the keeping process shall have it.
    drop(command);
    let (mut child, gone) = spawned.map_err(|e| format!("cannot start a process: {e}"))?;
    let readers = read_output(commands, running, &mut child).map_err(|e| e.to_string())?;
    let report = UnixStream::from_std(ours).map_err(|e| e.to_string())?;
    Ok(Process {
        keeper: i32::try_from(child.id()).unwrap_or(0),
        report,
        gone,
        readers,
    })
}

fn read_output(
    commands: &Commands,
    running: &Arc<Running>,
    child: &mut Child,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut readers = Vec::new();
    if let Some(out) = child.stdout.take() {
        let out = tokio::process::ChildStdout::from_std(out)?;
        readers.push(tokio::spawn(copy(
            commands.clone(),
            Arc::clone(running),
            Stream::Out,
            out,
        )));
    }
    if let Some(err) = child.stderr.take() {
        let err = tokio::process::ChildStderr::from_std(err)?;
        readers.push(tokio::spawn(copy(
            commands.clone(),
            Arc::clone(running),
            Stream::Err,
            err,
        )));
    }
    Ok(readers)
}

async fn copy<R: AsyncRead + Unpin>(commands: Commands, running: Arc<Running>, stream: Stream, mut from: R) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) => return,
            Ok(n) => commands.wrote(&running, (stream, Bytes::copy_from_slice(&buffer[..n]))),
            Err(error) => {
                let text = format!("\n[the output could not be read further: {error}]\n");
                commands.wrote(&running, (stream, Bytes::from(text)));
                return;
            }
        }
    }
}

impl Process {
    /// Waits for the command's end, its time limit or its cancellation, and then for nothing to be left.
    async fn watch(mut self, commands: &Commands, running: &Running, timeout_ms: u64) -> ExecEnd {
        let mut line = String::new();
        let mut report = BufReader::new(&mut self.report);
        let by_itself = tokio::select! {
            read = report.read_line(&mut line) => match read {
                Ok(n) if n > 0 => serde_json::from_str(&line).ok(),
                _ => None,
            },
            () = tokio::time::sleep(Duration::from_millis(timeout_ms)) => Some(ExecEnd::TimedOut),
            () = running.cancel.notified() => Some(ExecEnd::Cancelled),
        };
        let end = by_itself.unwrap_or(ExecEnd::Signal {
            signal: Signal::KILL.as_raw(),
        });
        let stopped_by_us = matches!(end, ExecEnd::TimedOut | ExecEnd::Cancelled);
        if stopped_by_us || timeout(LINGER, &mut self.gone).await.is_err() {
            let left = self.stop().await;
            if !stopped_by_us && left > 0 {
                commands.wrote(running, (Stream::Err, Bytes::from(ended_note(left))));
            }
        }
        commands.reaper.sweep_strangers().await;
        for mut reader in self.readers.drain(..) {
            if timeout(DRAIN, &mut reader).await.is_err() {
                reader.abort();
            }
        }
        end
    }

    /// Ends all descendants: asked first, killed after the grace, until the keeping process sees none.
    async fn stop(&mut self) -> usize {
        let left = signal_descendants(self.keeper, Signal::TERM);
        signal_descendants(self.keeper, Signal::CONT);
        let grace = Duration::from_millis(GRACE_MS);
        if timeout(grace, &mut self.gone).await.is_ok() {
            return left;
        }
        for _ in 0..KILL_ROUNDS {
            kill_descendants(self.keeper);
            if timeout(KILL_ROUND, &mut self.gone).await.is_ok() {
                return left;
            }
        }
        // It was stopped or does not do its work: the shim inherits what it kept, and sweeps it up.
        kill_tree(self.keeper);
        left
    }
}

fn ended_note(left: usize) -> String {
    format!(
        "\n[{left} processes were still running in the background and were ended; \
         `sallyport-shim background COMMAND` keeps one running]\n"
    )
}
