//! Programs beside a run: started on the host before it, ready when they print one line, ended after it.
use super::variables::Variables;
use crate::cli::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How long a service may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end before it is killed.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Longest ready line, in bytes.
const LINE_LIMIT: u64 = 64 << 10;

/// A running service; killed when dropped. It holds the other end of our pipe as its standard input, which ends
/// when this process does, however it does: a service that reads it never outlives the command.
#[derive(Debug)]
pub(super) struct Service {
    name: String,
    child: Child,
}

impl Service {
    /// Starts a program and waits for its ready line, whose fields become variables `NAME.FIELD`.
    pub(super) async fn start(
        name: &str,
        argv: &[String],
        folder: &Path,
        variables: &mut Variables,
    ) -> Result<Self, Failure> {
        let failed = |what: String| Failure::new(format!("service `{name}`: {what}"));
        let [program, arguments @ ..] = argv else {
            return Err(failed("its command is empty".to_owned()));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("`{program}` cannot be started: {error}")))?;
        let Some(out) = child.stdout.take() else {
            return Err(failed("its output cannot be read".to_owned()));
        };
        let mut out = BufReader::new(out);
        let line = tokio::time::timeout(READY_WITHIN, first_line(&mut out))
            .await
            .map_err(|_| failed(format!("not ready within {} s", READY_WITHIN.as_secs())))?
            .map_err(|error| failed(format!("its output cannot be read: {error}")))?;
        if line.is_empty() {
            let status = child.wait().await.map_err(|error| failed(error.to_string()))?;
            return Err(failed(format!(
                "`{program}` ended before it was ready ({status})"
            )));
        }
        variables.add_service(name, &line).map_err(failed)?;
        // What it prints later is read and dropped, so that it never waits for a reader.
        tokio::spawn(async move { tokio::io::copy(&mut out, &mut tokio::io::sink()).await });
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    /// Ends it and what it started: asks first, kills after 5 s.
    pub(super) async fn stop(mut self) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(END_WITHIN, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            if let Err(error) = self.child.wait().await {
                tracing::warn!(service = self.name, %error, "the service cannot be ended");
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let group = self
            .child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        if let Some(group) = group
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(service = self.name, %error, "it has ended already");
        }
    }
}

async fn first_line(out: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> std::io::Result<String> {
    let mut line = String::new();
    out.take(LINE_LIMIT).read_line(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn start(script: &str) -> Result<(Service, Variables), Failure> {
        let mut variables = Variables::default();
        let argv = ["sh", "-c", script].map(str::to_owned);
        let service = Service::start("s", &argv, Path::new("/"), &mut variables).await?;
        Ok((service, variables))
    }

    #[tokio::test]
    async fn a_service_tells_its_facts_and_is_ended_with_what_it_started() {
        let script = r#"sleep 600 & echo "{\"pid\": $!}"; wait"#;
        let (service, variables) = start(script).await.unwrap();
        let pid: i32 = variables.fill("${s.pid}").unwrap().parse().unwrap();
        service.stop().await;
        // The orphan is reaped by whoever adopts it; it must not run any more.
        let ended = async {
            let running = || {
                let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                !state.is_empty() && !state.contains(") Z ")
            };
            while running() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_service_that_fails_or_talks_nonsense_is_named() {
        let ended = start("exit 3").await.unwrap_err().to_string();
        assert!(ended.contains("service `s`") && ended.contains('3'), "{ended}");
        assert!(
            start("echo ready; sleep 60")
                .await
                .unwrap_err()
                .to_string()
                .contains("no JSON object")
        );
        let missing = Service::start(
            "s",
            &["/no/such".to_owned()],
            Path::new("/"),
            &mut Variables::default(),
        )
        .await;
        assert!(missing.unwrap_err().to_string().contains("/no/such"));
    }
}
