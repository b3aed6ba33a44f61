//! The real `sallyport-shim serve`, driven over its socket: commands, their ends, and the agent's own line.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share stops them, as a test does"
)]
use bytes::Bytes;
use sallyport_shim::wire::channel::{Channel, FrameReader, write_frame};
use sallyport_shim::wire::{BlockedNotice, ExecEnd, FromShim, Stream, ToShim, VERSION};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

struct Shim {
    folder: tempfile::TempDir,
    process: Child,
}

impl Shim {
    fn start() -> Shim {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join("control")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_sallyport-shim"))
            .arg("--socket")
            .arg(folder.path().join("agent.sock"))
            .args(["serve", "--outputs"])
            .arg(folder.path().join("outputs"))
            .arg("--root")
            .arg(folder.path().join("root"))
            .env("https_proxy", "http://host.test")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .spawn()
            .unwrap();
        Shim { folder, process }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn connect(&self, session: &str) -> Peer {
        Peer::connect(&self.path("control"), session, Arc::default()).await
    }

    fn agent(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-shim"));
        command.arg("--socket").arg(self.path("agent.sock")).args(args);
        command
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The supervisor's end.
struct Peer {
    channel: Arc<Channel<ToShim>>,
    received: mpsc::UnboundedReceiver<(FromShim, Bytes)>,
    boot: String,
    running: Vec<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Peer {
    async fn connect(socket: &Path, session: &str, channel: Arc<Channel<ToShim>>) -> Peer {
        let (read, mut write) = UnixStream::connect(socket).await.unwrap().into_split();
        let hello = ToShim::Hello {
            version: VERSION,
            session: session.to_owned(),
        };
        write_frame(&mut write, &channel.hello(hello)).await.unwrap();
        let mut reader = FrameReader::new(read);
        let first = reader.next::<FromShim>().await.unwrap();
        let Some(FromShim::Hello { boot, running, .. }) = first.head.message else {
            panic!("no hello")
        };
        let (give, received) = mpsc::unbounded_channel();
        let own = Arc::clone(&channel);
        let task = tokio::spawn(async move {
            let _ended = own
                .run(&mut reader, write, first.head.acknowledged, |message, body| {
                    let _unread = give.send((message, body));
                })
                .await;
        });
        Peer {
            channel,
            received,
            boot,
            running,
            task,
        }
    }

    fn send(&self, message: ToShim) {
        self.channel.send(message, Bytes::new());
    }

    fn exec(&self, id: &str, script: &str, timeout_ms: u64) {
        self.send(ToShim::Exec {
            id: id.to_owned(),
            argv: ["bash", "-c", script].map(str::to_owned).to_vec(),
            cwd: "/".to_owned(),
            env: BTreeMap::new(),
            timeout_ms,
        });
    }

    async fn next(&mut self) -> (FromShim, Bytes) {
        tokio::time::timeout(Duration::from_secs(20), self.received.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// Output, end and file of a command; fails if the end comes twice.
    async fn end(&mut self, wanted: &str) -> (String, ExecEnd, Option<String>) {
        let mut text = Vec::new();
        loop {
            match self.next().await {
                (FromShim::Started { .. }, _) => text.clear(),
                (FromShim::Output { id, .. }, body) if id == wanted => text.extend_from_slice(&body),
                (FromShim::Exited { id, end, full_output }, _) if id == wanted => {
                    return (String::from_utf8(text).unwrap(), end, full_output);
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    async fn output(&mut self, wanted: &str) {
        loop {
            if let (FromShim::Output { .. }, body) = self.next().await
                && body
                    .windows(wanted.len())
                    .any(|window| window == wanted.as_bytes())
            {
                return;
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Living processes whose command line holds `mark`.
fn alive(mark: &str) -> usize {
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        let line = std::fs::read(folder.join("cmdline")).ok()?;
        (!stat.contains(") Z ")).then(|| String::from_utf8_lossy(&line).into_owned())
    });
    lines.filter(|line| line.contains(mark)).count()
}

#[tokio::test]
async fn a_command_tells_both_streams_and_its_exit_code() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    peer.exec(
        "c1",
        "echo out; echo err >&2; echo proxy=$https_proxy; exit 7",
        10_000,
    );
    let mut streams = (String::new(), String::new());
    let end = loop {
        match peer.next().await {
            (
                FromShim::Output {
                    stream: Stream::Out, ..
                },
                body,
            ) => {
                streams.0.push_str(std::str::from_utf8(&body).unwrap());
            }
            (
                FromShim::Output {
                    stream: Stream::Err, ..
                },
                body,
            ) => {
                streams.1.push_str(std::str::from_utf8(&body).unwrap());
            }
            (FromShim::Exited { end, .. }, _) => break end,
            _ => {}
        }
    };
    assert_eq!(streams, ("out\nproxy=\n".to_owned(), "err\n".to_owned()));
    assert_eq!(end, ExecEnd::Code { code: 7 });
}

#[tokio::test]
async fn what_cannot_be_started_is_said_to_be_so() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    for (id, argv, cwd) in [
        ("c1", vec!["/no/such/program"], "/"),
        ("c2", vec!["true"], "/no/such"),
        ("c3", vec![], "/"),
    ] {
        peer.send(ToShim::Exec {
            id: id.to_owned(),
            argv: argv.into_iter().map(str::to_owned).collect(),
            cwd: cwd.to_owned(),
            env: BTreeMap::new(),
            timeout_ms: 10_000,
        });
        let (_, end, _) = peer.end(id).await;
        assert!(matches!(end, ExecEnd::NotStarted { .. }), "{id}: {end:?}");
    }
}

#[tokio::test]
async fn a_signal_is_told_as_a_signal() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    peer.exec("c1", "kill -SEGV $$", 10_000);
    assert_eq!(peer.end("c1").await.1, ExecEnd::Signal { signal: 11 });
}

#[tokio::test]
async fn a_new_supervisor_finds_the_running_command_and_does_not_run_it_twice() {
    let shim = Shim::start();
    let script = format!(
        "echo begun; echo x >> {0}; read < {1}; echo finished",
        shim.path("ran").display(),
        shim.path("go").display()
    );
    assert!(
        Command::new("mkfifo")
            .arg(shim.path("go"))
            .status()
            .unwrap()
            .success()
    );
    let mut first = shim.connect("s1").await;
    first.exec("c1", &script, 30_000);
    first.output("begun").await;
    let boot = first.boot.clone();
    drop(first);
    let mut second = shim.connect("s2").await;
    assert_eq!(
        (second.boot.clone(), second.running.clone()),
        (boot, vec!["c1".to_owned()])
    );
    second.exec("c1", &script, 30_000);
    second.output("begun").await;
    std::fs::write(shim.path("go"), "\n").unwrap();
    let (text, end, _) = second.end("c1").await;
    assert_eq!((text.as_str(), end), ("finished\n", ExecEnd::Code { code: 0 }));
    second.exec("c1", &script, 30_000);
    let (text, end, _) = second.end("c1").await;
    assert_eq!(
        (text.as_str(), end),
        ("begun\nfinished\n", ExecEnd::Code { code: 0 })
    );
    assert_eq!(std::fs::read_to_string(shim.path("ran")).unwrap(), "x\n");
}

#[tokio::test]
async fn a_reconnect_of_the_same_supervisor_loses_nothing() {
    let shim = Shim::start();
    let channel: Arc<Channel<ToShim>> = Arc::default();
    let first = Peer::connect(&shim.path("control"), "s1", Arc::clone(&channel)).await;
    first.exec("c1", "echo one; echo two", 10_000);
    drop(first);
    let mut second = Peer::connect(&shim.path("control"), "s1", channel).await;
    let (text, end, _) = second.end("c1").await;
    assert_eq!((text.as_str(), end), ("one\ntwo\n", ExecEnd::Code { code: 0 }));
}

#[tokio::test]
async fn a_long_output_is_told_in_part_and_lies_whole_in_a_file() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    peer.exec("c1", "seq 1 200000", 30_000);
    let (text, end, file) = peer.end("c1").await;
    assert_eq!(end, ExecEnd::Code { code: 0 });
    assert!(text.starts_with("1\n2\n") && text.ends_with("199999\n200000\n"));
    assert!(text.len() < 300_000 && text.contains("bytes left out"));
    let whole: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(std::fs::read_to_string(file.unwrap()).unwrap(), whole);
}

/// Cases of work that does not stop by itself: nothing is left, and there is one end within the limit.
async fn ends_at_its_limit(name: &str, script: &str) {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    let mark = format!("mark-{name}-{}", std::process::id());
    let script = script
        .replace("MARK", &mark)
        .replace("FILE", &shim.path("x").display().to_string());
    let begun = Instant::now();
    peer.exec("c1", &script, 1000);
    let (text, end, _) = peer.end("c1").await;
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "{name} took {:?}",
        begun.elapsed()
    );
    assert_eq!(end, ExecEnd::TimedOut, "{name}: {text}");
    assert!(text.contains("begun"), "{name}: {text}");
    assert_eq!(alive(&mark), 0, "{name}");
    assert!(!shim.path("x").exists(), "{name}");
    peer.exec("c2", "echo next", 10_000);
    assert_eq!(peer.end("c2").await.0, "next\n", "exactly one end for {name}");
}

const SLEEP: &str = "bash -c 'exec -a MARK sleep 600'";

#[tokio::test]
async fn a_pipe_that_is_held_open_does_not_hold_the_end() {
    ends_at_its_limit("pipe", &format!("echo begun; {SLEEP} | cat")).await;
    ends_at_its_limit("later", &format!("echo begun; ({SLEEP}; touch FILE) & wait")).await;
}

#[tokio::test]
async fn sessions_double_forks_and_nohup_do_not_escape() {
    ends_at_its_limit("setsid", &format!("echo begun; setsid {SLEEP} & sleep 600")).await;
    ends_at_its_limit("nohup", &format!("echo begun; nohup {SLEEP} & sleep 600")).await;
    ends_at_its_limit(
        "double",
        &format!("echo begun; (setsid bash -c \"({SLEEP} &)\" &); sleep 600"),
    )
    .await;
}

#[tokio::test]
async fn a_program_that_ignores_being_asked_is_killed_after_the_grace() {
    ends_at_its_limit(
        "ignores",
        "echo begun; trap '' TERM; exec -a MARK bash -c \"while :; do read -t 9 < <(:); done; : MARK\"",
    )
    .await;
    ends_at_its_limit("stops", &format!("echo begun; {SLEEP} & kill -STOP $!; wait")).await;
}

#[tokio::test]
async fn a_hundred_processes_and_endless_output_end_too() {
    ends_at_its_limit(
        "hundred",
        &format!("echo begun; for n in $(seq 100); do setsid {SLEEP} & done; wait"),
    )
    .await;
    ends_at_its_limit("yes", "echo begun; exec -a MARK yes").await;
    ends_at_its_limit("bomb", "echo begun; trap '' TERM; f() { : MARK; (trap '' TERM; sleep 0.05; f) & sleep 0.1; }; f; wait; sleep 600").await;
}

#[tokio::test]
async fn killing_the_keeping_process_does_not_let_the_work_escape() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    let mark = format!("mark-keeper-{}", std::process::id());
    peer.exec(
        "c1",
        &format!(
            "setsid {} & kill -9 $PPID; sleep 600",
            SLEEP.replace("MARK", &mark)
        ),
        30_000,
    );
    assert_eq!(peer.end("c1").await.1, ExecEnd::Signal { signal: 9 });
    assert_eq!(alive(&mark), 0);
}

#[tokio::test]
async fn cancel_ends_a_command_and_says_so_once() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    peer.exec("c1", "echo begun; sleep 600", 600_000);
    peer.output("begun").await;
    peer.send(ToShim::Cancel { id: "c1".to_owned() });
    peer.send(ToShim::Cancel { id: "c1".to_owned() });
    peer.send(ToShim::Cancel {
        id: "unknown".to_owned(),
    });
    assert_eq!(peer.end("c1").await.1, ExecEnd::Cancelled);
    peer.exec("c2", "true", 10_000);
    assert_eq!(peer.end("c2").await.1, ExecEnd::Code { code: 0 });
}

#[tokio::test]
async fn what_runs_on_in_the_background_is_ended_and_said_so_unless_declared() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    let mark = format!("mark-background-{}", std::process::id());
    peer.exec(
        "c1",
        &format!("{} & echo done", SLEEP.replace("MARK", &mark)),
        30_000,
    );
    let (text, end, _) = peer.end("c1").await;
    assert_eq!(end, ExecEnd::Code { code: 0 });
    assert!(
        text.contains("done") && text.contains("were still running in the background"),
        "{text}"
    );
    assert_eq!(alive(&mark), 0);
    let declared = format!("{mark}-declared");
    let out = shim
        .agent(&[
            "background",
            "--",
            "bash",
            "-c",
            &format!("exec -a {declared} sleep 600"),
        ])
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    peer.exec("c2", "true", 10_000);
    peer.end("c2").await;
    assert!(alive(&declared) > 0, "a declared job lives on");
    drop(peer);
    drop(shim);
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive(&declared) > 0 {
        assert!(Instant::now() < deadline, "a job outlived its shim");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn setup_installs_trust_and_gives_commands_their_variables() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    peer.send(ToShim::Setup {
        ca_pem: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
        env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
        unix_ms: i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap(),
    });
    let (FromShim::Ready { warnings }, _) = peer.next().await else {
        panic!("not ready")
    };
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("no roots of its own")),
        "{warnings:?}"
    );
    assert!(shim.path("root/etc/ssl/gw/bundle.pem").exists());
    peer.exec("c1", "echo $GREETING $NODE_EXTRA_CA_CERTS", 10_000);
    assert_eq!(peer.end("c1").await.0, "hello /etc/ssl/gw/ca.pem\n");
}

#[tokio::test]
async fn files_are_written_in_pieces_and_read_back() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    let path = shim.path("a/b").display().to_string();
    for (piece, more) in [("one", true), ("two", false)] {
        let write = ToShim::WriteFile {
            id: "f1".to_owned(),
            path: path.clone(),
            mode: 0o600,
            more,
        };
        peer.channel.send(write, Bytes::from_static(piece.as_bytes()));
    }
    let (FromShim::File { error, size, .. }, _) = peer.next().await else {
        panic!("no answer")
    };
    assert_eq!((error, size), (None, 6));
    peer.send(ToShim::ReadFile {
        id: "f2".to_owned(),
        path,
        offset: 1,
        limit: 3,
    });
    let (FromShim::File { error, size, .. }, body) = peer.next().await else {
        panic!("no answer")
    };
    assert_eq!((error, size, &body[..]), (None, 6, &b"net"[..]));
    peer.send(ToShim::ReadFile {
        id: "f3".to_owned(),
        path: "/no/such".to_owned(),
        offset: 0,
        limit: 3,
    });
    let (FromShim::File { error, .. }, _) = peer.next().await else {
        panic!("no answer")
    };
    assert!(error.unwrap().contains("`/no/such`"));
}

#[tokio::test]
async fn the_agent_sees_what_was_blocked_and_may_ask() {
    let shim = Shim::start();
    let mut peer = shim.connect("s1").await;
    peer.send(ToShim::Blocked {
        notice: BlockedNotice {
            id: "d1".to_owned(),
            unix_ms: 0,
            what: "GET https://other.test/x".to_owned(),
            rule: "default".to_owned(),
            reason: "no rule allows it".to_owned(),
            remedy: "ask for it".to_owned(),
        },
    });
    peer.exec("c1", "true", 10_000);
    peer.end("c1").await;
    let told = shim.agent(&["blocked"]).output().unwrap();
    assert!(
        String::from_utf8(told.stdout)
            .unwrap()
            .contains("remedy: ask for it")
    );
    let told = shim.agent(&["blocked", "--json"]).output().unwrap();
    assert_eq!(
        serde_json::from_slice::<BlockedNotice>(&told.stdout).unwrap().id,
        "d1"
    );

    for (granted, code) in [(true, 0), (false, 1)] {
        let mut asking = shim.agent(&["request-access", "docs.rs", "--method", "get", "--why", "docs"]);
        let asking = asking.stdout(Stdio::piped()).spawn().unwrap();
        let (
            FromShim::Request {
                id,
                host,
                port,
                method,
                ..
            },
            _,
        ) = peer.next().await
        else {
            panic!("no request")
        };
        assert_eq!(
            (host.as_str(), port, method.as_deref()),
            ("docs.rs", 443, Some("GET"))
        );
        peer.send(ToShim::Answer {
            id,
            granted,
            text: "for an hour".to_owned(),
        });
        let out = tokio::task::spawn_blocking(|| asking.wait_with_output().unwrap())
            .await
            .unwrap();
        assert_eq!(out.status.code(), Some(code));
        assert!(String::from_utf8(out.stdout).unwrap().contains("for an hour"));
    }
    let late = shim
        .agent(&["request-access", "docs.rs", "--why", "docs", "--wait", "0"])
        .output()
        .unwrap();
    assert_eq!(late.status.code(), Some(75));
    let bad = shim
        .agent(&["request-access", "https://docs.rs", "--why", "docs"])
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8(bad.stderr).unwrap().contains("is not a host"));
}

#[test]
fn without_a_serving_shim_the_agent_is_told_where_it_was_looked_for() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-shim"));
    let out = command
        .args(["--socket", "/no/such.sock", "blocked"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8(out.stderr).unwrap().contains("`/no/such.sock`"));
}

#[test]
fn standard_input_that_is_no_listening_socket_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-shim"));
    let out = command.arg("serve").stdin(Stdio::null()).output().unwrap();
    assert!(!out.status.success());
    assert!(String::from_utf8(out.stderr).unwrap().contains("cannot serve"));
}
