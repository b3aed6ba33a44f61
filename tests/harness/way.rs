//! One way out: an origin, a gateway before it, and a session, all of them the real programs.
use crate::stage::{Running, Stage};
use anyhow::Context;
use sallyport_gateway::control::types::{SessionSpec, SessionView};
use sallyport_policy::{PolicyText, Who};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);
/// The name of the origin's token in the gateway's store.
pub const TOKEN: &str = "forge";

/// An origin for `allowed.test` on port 8443 of an address of its own; its life hangs on its input.
#[derive(Debug)]
struct Origin {
    program: Child,
    said: Value,
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.program.kill();
        let _gone = self.program.wait();
    }
}

impl Origin {
    fn start(stage: &Stage, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = stage.command("sallyport-origin");
        command
            .args(["--name", "allowed.test", "--port", "8443", "--dir"])
            .arg(stage.path("home/origin"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut program = command.spawn()?;
        let mut line = String::new();
        let out = program.stdout.take().context("no standard output")?;
        BufReader::new(out).read_line(&mut line)?;
        let said = serde_json::from_str(&line)?;
        Ok(Self { program, said })
    }

    fn said(&self, what: &str) -> anyhow::Result<&str> {
        self.said[what]
            .as_str()
            .with_context(|| format!("the origin did not say its {what}"))
    }
}

/// All of it; taken down when dropped.
#[derive(Debug)]
pub struct Way {
    /// Where the programs run.
    pub stage: Stage,
    /// The gateway, which knows the origin's token as [`TOKEN`].
    pub gateway: Running,
    /// The session `run-1`.
    pub view: SessionView,
    /// `ADDRESS:PORT` of the explicit proxy.
    pub proxy: String,
    _origin: Origin,
}

impl Way {
    /// Starts an origin with these further arguments, and opens a session with this policy.
    pub fn open(stage: Stage, origin: &[&str], policy: &str) -> anyhow::Result<Self> {
        let origin = Origin::start(&stage, origin)?;
        let token = std::fs::read_to_string(origin.said("token_file")?)?;
        let program = || {
            let mut command = stage.command("sallyport-gateway");
            command.arg("--state").arg(stage.path("state"));
            command
        };
        let mut keeping = program();
        let mut keeping = keeping
            .args(["secret", "set", TOKEN])
            .stdin(Stdio::piped())
            .spawn()?;
        let mut input = keeping.stdin.take().context("no standard input")?;
        input.write_all(token.as_bytes())?;
        drop(input);
        anyhow::ensure!(keeping.wait()?.success(), "the token was not kept");
        let mut gateway = Running::start(program().args(["serve", "--dns", "127.0.0.1:1"]))?;
        let ready: Value = serde_json::from_str(&gateway.wait_for("\"ready\":true", SHORT)?)?;
        let proxy = ready["proxy"].as_str().context("no proxy")?.to_owned();
        let view = session(&stage, &origin, policy)?;
        Ok(Self {
            stage,
            gateway,
            view,
            proxy,
            _origin: origin,
        })
    }

    /// The most memory that the gateway ever had, in KiB.
    pub fn peak_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let count = line.context("no such line")?.trim().trim_end_matches(" kB");
        Ok(count.parse()?)
    }
}

fn session(stage: &Stage, origin: &Origin, policy: &str) -> anyhow::Result<SessionView> {
    let spec = SessionSpec {
        who: Who {
            run: "run-1".into(),
            ..Who::default()
        },
        policies: vec![PolicyText {
            name: "policy.yaml".into(),
            text: policy.into(),
        }],
        hosts: [("allowed.test".to_owned(), origin.said("address")?.parse()?)].into(),
        upstream_roots_pem: std::fs::read_to_string(origin.said("ca_file")?)?,
    };
    let output = Command::new("curl")
        .args(["-sS", "--fail-with-body", "-X", "PUT", "-d"])
        .arg(serde_json::to_string(&spec)?)
        .arg("--unix-socket")
        .arg(stage.path("state/gateway.sock"))
        .arg("http://gateway/v1/sessions/run-1")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(output.status.success(), "the session was not opened: {said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}
