//! `git http-backend` as a CGI program (RFC 3875), and the repositories that it serves.
use anyhow::Context;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio_util::io::ReaderStream;

/// A response whose body comes from a program.
pub(crate) type Answer = Response<BoxBody<Bytes, std::io::Error>>;

/// Where the repositories stand.
pub(crate) fn root(dir: &Path) -> PathBuf {
    dir.join("repositories")
}

/// Makes the bare repository of a `PATH=FOLDER` argument, with one commit of the folder.
pub(crate) fn seed(dir: &Path, argument: &str) -> anyhow::Result<()> {
    let (path, folder) = argument
        .split_once('=')
        .context("--repository takes PATH=FOLDER")?;
    let bare = root(dir).join(path);
    std::fs::create_dir_all(&bare)?;
    let folder = Path::new(folder)
        .canonicalize()
        .with_context(|| format!("no folder `{folder}`"))?;
    git(
        &bare,
        &["init", "--quiet", "--bare", "--initial-branch=main", "."],
    )?;
    git(&bare, &["config", "http.receivepack", "true"])?;
    git(&bare, &["config", "core.logAllRefUpdates", "true"])?;
    let (bare, work) = (bare.to_string_lossy(), folder.to_string_lossy());
    let (git_dir, work_tree) = (format!("--git-dir={bare}"), format!("--work-tree={work}"));
    let index = [git_dir.as_str(), work_tree.as_str(), "-c", "core.bare=false"];
    git(&folder, &[&index[..], &["add", "--all"]].concat())?;
    let author = ["-c", "user.name=Origin", "-c", "user.email=origin@sallyport.test"];
    git(
        &folder,
        &[&index[..], &author[..], &["commit", "--quiet", "-m", "Begin"]].concat(),
    )
}

fn git(at: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let output = std::process::Command::new("git")
        .current_dir(at)
        .args(arguments)
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "git {arguments:?} failed: {complaint}");
    Ok(())
}

/// Runs one request through `git http-backend`; the bodies stream both ways.
pub(crate) async fn git_backend(
    dir: &Path,
    head: &http::request::Parts,
    body: Incoming,
    user: Option<&str>,
) -> anyhow::Result<Answer> {
    let header = |name: &str| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root(dir))
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("HTTP_GIT_PROTOCOL", header("git-protocol"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", user.unwrap_or_default())
        .env("REMOTE_ADDR", "127.0.0.1")
        .envs(
            head.headers
                .get("content-length")
                .and_then(|l| l.to_str().ok())
                .map(|l| ("CONTENT_LENGTH", l)),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let output = child.stdout.take().context("no standard output")?;
    tokio::spawn(async move {
        let mut pieces = body.into_data_stream();
        while let Some(Ok(piece)) = pieces.next().await {
            if input.write_all(&piece).await.is_err() {
                return; // git has heard enough and says so in its answer
            }
        }
    });
    let answer = read_answer(output).await?;
    tokio::spawn(async move { child.wait().await });
    Ok(answer)
}

/// Reads a CGI head (RFC 3875 section 6.2); the rest of the stream is the body.
async fn read_answer(output: impl AsyncRead + Send + Sync + Unpin + 'static) -> anyhow::Result<Answer> {
    let mut output = BufReader::new(output);
    let mut answer = Response::builder().status(StatusCode::OK);
    loop {
        let mut line = String::new();
        anyhow::ensure!(
            output.read_line(&mut line).await? > 0,
            "git http-backend ended within its head"
        );
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').context("malformed CGI header")?;
        if name.eq_ignore_ascii_case("status") {
            answer = answer.status(value.trim().get(..3).context("malformed status")?);
        } else {
            let name = HeaderName::from_bytes(name.as_bytes())?;
            answer = answer.header(name, HeaderValue::from_str(value.trim())?);
        }
    }
    let frames = ReaderStream::new(output).map(|piece| piece.map(Frame::data));
    Ok(answer.body(BodyExt::boxed(StreamBody::new(frames)))?)
}
