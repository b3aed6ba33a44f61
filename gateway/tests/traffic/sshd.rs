//! A real OpenSSH server on loopback, and real clients that reach it through a gateway.
use crate::origin::Roots;
use crate::stand::Stand;
use sallyport_gateway::control::types::AuditRecord;
use sallyport_gateway::secret::{SecretStore, Value};
use sallyport_gateway::ssh::host_key::HostKey;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway, a host behind it, and a client's files.
pub(crate) struct Yard {
    pub(crate) stand: Stand,
    pub(crate) folder: tempfile::TempDir,
    /// The user that the host knows.
    pub(crate) user: String,
    /// Where clients connect: led through the proxy to the host under a name.
    pub(crate) port: u16,
    /// The host's own.
    pub(crate) host_port: u16,
    host: Child,
    bridge: tokio::task::JoinHandle<()>,
}

impl Drop for Yard {
    fn drop(&mut self) {
        self.bridge.abort();
        // It is gone already where this fails.
        let _gone = self.host.start_kill();
    }
}

impl Yard {
    /// A host that is known to the gateway and lets in by the key behind credential `deploy`.
    /// `policy` has `PORT`, `HOSTKEY` (a whole line of known hosts) and `USER` in it.
    pub(crate) async fn new(policy: &str) -> Self {
        Self::with_line(policy, None).await
    }

    /// With another line of known hosts.
    pub(crate) async fn with_line(policy: &str, line: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (real, host_key) = (folder.path().join("real"), folder.path().join("host"));
        keygen(&real).await;
        keygen(&host_key).await;
        std::fs::copy(real.with_extension("pub"), folder.path().join("authorized")).unwrap();
        let host_port = free_port().await;
        let user = whoami().await;
        let host = start_sshd(folder.path(), host_port).await;
        let stand = Stand::new(&Roots::new(), host_port).await;
        let store = SecretStore::open(stand.folder.path()).unwrap();
        store
            .set("deploy", Value::new(std::fs::read(&real).unwrap()))
            .unwrap();
        let public = std::fs::read_to_string(host_key.with_extension("pub")).unwrap();
        let own = format!(
            "[allowed.test]:{host_port},[opaque.test]:{host_port} {}",
            public.trim()
        );
        let policy = policy
            .replace("HOSTKEY", line.unwrap_or(&own))
            .replace("USER", &user);
        stand.put(&policy);
        let (port, bridge) = bridge(&stand, &format!("allowed.test:{host_port}")).await;
        let yard = Self {
            stand,
            folder,
            user,
            port,
            host_port,
            host,
            bridge,
        };
        let key = HostKey::open(yard.stand.folder.path()).unwrap();
        std::fs::write(yard.path("known"), key.known_hosts_line()).unwrap();
        if let Some(placeholder) = yard.placeholder("deploy") {
            write_key(&yard.path("placeholder"), &placeholder);
        }
        yard
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The placeholder of a credential, if it has one.
    pub(crate) fn placeholder(&self, name: &str) -> Option<String> {
        let view = self.stand.sessions.view("run-1", "").unwrap();
        let found = view
            .credentials
            .into_iter()
            .find(|credential| credential.name == name);
        found.map(|credential| credential.placeholder)
    }

    /// Options under which a client trusts the gateway alone and shows this key.
    pub(crate) fn options(&self, key: &str) -> Vec<String> {
        [
            "-F",
            "none",
            "-i",
            &self.path(key).display().to_string(),
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            &format!("UserKnownHostsFile={}", self.path("known").display()),
            "-o",
            "GlobalKnownHostsFile=/dev/null",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// `ssh` with the placeholder key; the last arguments are the command.
    pub(crate) async fn ssh(&self, arguments: &[&str], input: &[u8]) -> Output {
        self.ssh_with("placeholder", arguments, input).await
    }

    pub(crate) async fn ssh_with(&self, key: &str, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(key);
        command.args(arguments);
        finish(command, input).await
    }

    /// `ssh` as far as the host; options may not follow, a command may.
    pub(crate) fn command(&self, key: &str) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.options(key));
        command.args(["-p", &self.port.to_string(), "-l", &self.user, "127.0.0.1"]);
        command
    }

    /// `git` over ssh, with the placeholder key.
    pub(crate) async fn git(&self, folder: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(folder)
            .args(["-c", "user.name=ada", "-c", "user.email=ada@acme.test"])
            .args(["-c", "init.defaultBranch=main"])
            .args(arguments);
        let ssh = format!("ssh {}", self.options("placeholder").join(" "));
        command
            .env("GIT_SSH_COMMAND", ssh)
            .env("GIT_TERMINAL_PROMPT", "0");
        finish(command, b"").await
    }

    /// The address of a repository at the host.
    pub(crate) fn repository(&self, path: &str) -> String {
        format!("ssh://{}@127.0.0.1:{}{path}", self.user, self.port)
    }

    /// The records of kind `ssh`, once there are as many as `count`.
    pub(crate) async fn records(&self, count: usize) -> Vec<AuditRecord> {
        let mut all = self.stand.records(count).await;
        all.retain(|record| record.kind == "ssh");
        assert!(all.len() >= count, "{all:#?}");
        all
    }
}

/// Runs to the end, within patience.
pub(crate) async fn finish(mut command: Command, input: &[u8]) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("SSH_AUTH_SOCK")
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = tokio::spawn(async move {
        // A client that leaves early takes no more.
        let _left = stdin.write_all(&input).await;
    });
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    writing.abort();
    output.expect("the client did not end").unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) async fn keygen(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "a comment", "-f"])
        .arg(path);
    assert!(finish(command, b"").await.status.success());
}

pub(crate) fn write_key(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
}

async fn whoami() -> String {
    let mut command = Command::new("id");
    command.arg("-un");
    text(&finish(command, b"").await.stdout).trim().to_owned()
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

async fn start_sshd(folder: &Path, port: u16) -> Child {
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\nPidFile none\n\
         UsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         Subsystem sftp internal-sftp\nAcceptEnv LANG GIT_PROTOCOL SECRET_NAME\nPrintMotd no\nPrintLastLog no\n\
         MaxStartups 100\n",
        folder.display()
    );
    std::fs::write(folder.join("sshd.conf"), config).unwrap();
    // The directory for separation of privileges is made by the package's service, which does not run here.
    if std::fs::create_dir_all("/run/sshd").is_err() {
        assert!(Path::new("/run/sshd").exists());
    }
    let mut command = Command::new("/usr/sbin/sshd");
    command
        .args(["-D", "-e", "-f"])
        .arg(folder.join("sshd.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("sshd.log")).unwrap())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        let ended = child.try_wait().unwrap();
        let log = std::fs::read_to_string(folder.join("sshd.log")).unwrap_or_default();
        assert!(ended.is_none(), "sshd ended: {log}");
        assert!(
            tokio::time::Instant::now() < deadline,
            "sshd does not listen: {log}"
        );
        tokio::task::yield_now().await;
    }
    child
}

/// A listener whose connections come out of the session's proxy at `target`.
pub(crate) async fn bridge(stand: &Stand, target: &str) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {}\r\n\r\n",
        stand.authorization()
    );
    let proxy = stand.proxy;
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let head = head.clone();
            tokio::spawn(async move {
                let mut upstream = TcpStream::connect(proxy).await.unwrap();
                upstream.write_all(head.as_bytes()).await.unwrap();
                let answer = crate::stand::read_head(&mut upstream).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                // Either side may leave as it likes.
                let _over = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
            });
        }
    });
    (port, serving)
}
