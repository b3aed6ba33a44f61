//! Real git on both sides of the gateway: `git http-backend` behind TLS, and a clone that pushes through the proxy.
use crate::origin::{Origin, Reply, Roots};
use crate::stand::Stand;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio_util::io::ReaderStream;

/// Anybody may read; branches below `agent/` and tags that begin with `v` may be pushed, but never by force.
pub(crate) const PUSHES: &str = r#"
version: 1
name: pushes
default: deny
rules:
  - id: fetch
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: git, repository: "acme/*", access: read, private: true}
    effect: allow
  - id: push
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: git, repository: "acme/web", access: write, refs: ["agent/**", "refs/tags/v*"], force: false, private: true}
    effect: allow
"#;

/// A forge with the repository `acme/web`, a gateway before it, and a clone made without it.
pub(crate) struct Forge {
    pub(crate) stand: Stand,
    pub(crate) origin: Origin,
    folder: tempfile::TempDir,
}

impl Forge {
    pub(crate) async fn new(alpn: &[&str]) -> Self {
        Self::served(alpn, backend).await
    }

    /// A forge that answers requests in a way of its own; it is told where the repositories stand.
    pub(crate) async fn served<F, R>(alpn: &[&str], answer: F) -> Self
    where
        F: Fn(PathBuf, Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Reply>> + Send + 'static,
    {
        let folder = tempfile::tempdir().unwrap();
        let bare = folder.path().join("acme/web.git");
        let roots = Roots::new();
        let root = folder.path().to_owned();
        let origin = Origin::http(&roots, alpn, move |request| answer(root.clone(), request)).await;
        let stand = Stand::new(&roots, origin.port).await;
        stand.put(PUSHES);
        std::fs::write(folder.path().join("ca.pem"), &stand.ca_pem).unwrap();
        let forge = Self {
            stand,
            origin,
            folder,
        };
        forge
            .done(&["init", "-q", "--bare", "-b", "main", bare.to_str().unwrap()])
            .await;
        forge
            .done(&["-C", bare.to_str().unwrap(), "config", "http.receivepack", "true"])
            .await;
        let work = forge.work();
        forge
            .done(&["init", "-q", "-b", "main", work.to_str().unwrap()])
            .await;
        for number in 0..3 {
            forge.commit(&format!("file{number}"), b"text\n").await;
        }
        forge
            .in_work(&[
                "push",
                "-q",
                bare.to_str().unwrap(),
                "main",
                "main~1:refs/heads/agent/base",
            ])
            .await;
        forge.in_work(&["remote", "add", "origin", &forge.url()]).await;
        forge
    }

    pub(crate) fn bare(&self) -> PathBuf {
        self.folder.path().join("acme/web.git")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/acme/web.git", self.stand.at("allowed.test"))
    }

    /// One git command through the gateway.
    pub(crate) async fn git(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// The same, not yet started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let proxy = format!("http://run-1:{}@{}", self.stand.token, self.stand.proxy);
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=A", "-c", "user.email=a@sallyport.test"])
            .args([
                "-c",
                &format!("http.proxy={proxy}"),
                "-c",
                "http.proxyAuthMethod=basic",
            ])
            .args([
                "-c",
                &format!("http.sslCAInfo={}", self.folder.path().join("ca.pem").display()),
            ])
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// One git command that must succeed; what it said.
    pub(crate) async fn done(&self, arguments: &[&str]) -> String {
        let output = self.git(arguments).await;
        let said = said(&output);
        assert!(output.status.success(), "git {arguments:?}: {said}");
        said
    }

    pub(crate) async fn in_work(&self, arguments: &[&str]) -> String {
        let work = self.work();
        self.done(&[&["-C", work.to_str().unwrap()], arguments].concat())
            .await
    }

    /// A push that must fail; what git said of it.
    pub(crate) async fn refused(&self, arguments: &[&str]) -> String {
        let work = self.work();
        let output = self
            .git(&[&["-C", work.to_str().unwrap(), "push"], arguments].concat())
            .await;
        assert!(!output.status.success(), "git push {arguments:?} was let through");
        said(&output)
    }

    pub(crate) async fn commit(&self, name: &str, content: &[u8]) {
        std::fs::write(self.work().join(name), content).unwrap();
        self.in_work(&["add", "--all"]).await;
        self.in_work(&["commit", "-q", "-m", name]).await;
    }

    /// Where a ref of the forge stands; empty where it is not there.
    pub(crate) async fn at_forge(&self, name: &str) -> String {
        let bare = self.bare();
        let output = self
            .git(&["-C", bare.to_str().unwrap(), "rev-parse", "-q", "--verify", name])
            .await;
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) async fn here(&self, name: &str) -> String {
        self.in_work(&["rev-parse", name]).await.trim().to_owned()
    }

    /// How many pushes reached the forge; the empty ones by which git asks whether it may are none.
    pub(crate) fn arrived(&self) -> usize {
        let seen = self.origin.seen();
        let pushes = seen
            .iter()
            .filter(|head| head.starts_with("POST") && head.contains("receive-pack"));
        pushes
            .filter(|head| !head.contains("content-length: 4\n"))
            .count()
    }
}

pub(crate) fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// `git http-backend` as a CGI program (RFC 3875); bodies stream both ways.
pub(crate) async fn backend(root: PathBuf, request: Request<Incoming>) -> Response<Reply> {
    let (head, body) = request.into_parts();
    let header = |name: &str| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", &root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", "agent")
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("HOME", &root)
        .envs(
            head.headers
                .contains_key("content-length")
                .then(|| ("CONTENT_LENGTH", header("content-length"))),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    tokio::spawn(async move {
        let mut pieces = body.into_data_stream();
        while let Some(Ok(piece)) = pieces.next().await {
            if input.write_all(&piece).await.is_err() {
                return; // git has heard enough and says so in its answer
            }
        }
    });
    let mut output = BufReader::new(output);
    let mut answer = Response::builder();
    loop {
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        answer = match name {
            "Status" => answer.status(&value[..3]),
            name => answer.header(
                HeaderName::try_from(name).unwrap(),
                HeaderValue::try_from(value).unwrap(),
            ),
        };
    }
    let frames = ReaderStream::new(output).map(move |piece| {
        let _running = &child;
        piece.map(Frame::<Bytes>::data)
    });
    answer.body(StreamBody::new(frames).boxed_unsync()).unwrap()
}
