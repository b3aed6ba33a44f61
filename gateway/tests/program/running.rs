//! The program, started in a folder of a test's own, and what is asked of it.
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) fn program(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-gateway"));
    command.env_clear().arg("--state").arg(state);
    command
}

pub(crate) fn output(state: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = program(state)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

pub(crate) fn fails_with(code: i32, output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// A gateway that serves; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) ready: serde_json::Value,
}

impl Running {
    pub(crate) fn start(state: &Path, arguments: &[&str]) -> Self {
        Self::start_with(state, arguments, Stdio::inherit())
    }

    pub(crate) fn start_with(state: &Path, arguments: &[&str], log: Stdio) -> Self {
        Self::of(program(state), arguments, log)
    }

    pub(crate) fn of(mut command: Command, arguments: &[&str], log: Stdio) -> Self {
        let mut child = command
            .arg("serve")
            .args(["--dns", "127.0.0.1:1"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, ready }
    }

    /// The same, with the lines of its log.
    pub(crate) fn start_heard(
        state: &Path,
        arguments: &[&str],
    ) -> (Self, impl Iterator<Item = String> + use<>) {
        let mut running = Self::start_with(state, arguments, Stdio::piped());
        let log = running.hear();
        (running, log)
    }

    /// The lines of its log, where that is piped.
    pub(crate) fn hear(&mut self) -> impl Iterator<Item = String> + use<> {
        let log = BufReader::new(self.child.stderr.take().unwrap());
        log.lines().map(Result::unwrap)
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.ready["control"].as_str().unwrap()).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer[9..12].parse().unwrap();
        (
            status,
            answer
                .split_once("\r\n\r\n")
                .map(|(_, body)| body.to_owned())
                .unwrap_or_default(),
        )
    }

    /// One request to the proxy by whoever has this log-in; the whole answer.
    pub(crate) fn proxied(&self, head: &str, login: &str, body: &[u8]) -> Vec<u8> {
        let mut stream = std::net::TcpStream::connect(self.ready["proxy"].as_str().unwrap()).unwrap();
        let rest = format!("\r\nProxy-Authorization: Basic {login}\r\n\r\n");
        stream
            .write_all(&[head.as_bytes(), rest.as_bytes(), body].concat())
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is what most tests want.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(crate) const POLICY: &str = r#"version: 1
name: p
credentials:
  forge: {from: {store: forge}, hosts: [a.test], in: [bearer]}
rules:
  - {id: a, to: {host: a.test}, use: [forge], effect: allow}
"#;

pub(crate) fn spec() -> String {
    serde_json::json!({"who": {"run": "r"}, "policies": [{"name": "p.yaml", "text": POLICY}]}).to_string()
}
