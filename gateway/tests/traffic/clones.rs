//! Clones as git and git-lfs make them of large repositories: partial, many refs at once, objects elsewhere (case T03).
use crate::git::{Forge, PUSHES, backend, said};
use crate::origin::{Reply, full};
use crate::stand::SECRET;
use futures_util::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use sallyport_gateway::control::types::Verdict;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};

const BOTH: &[&str] = &["h2", "http/1.1"];

/// What a forge with large files needs besides; `HOSTS` are those that the credential is for.
const LARGE_FILES: &str = r#"
  - id: large-files
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [POST], path: "/acme/web.git/info/lfs/objects/batch", private: true}
    use: [token]
    effect: allow
  - id: store
    to: {host: [store.test, 127.0.0.0/8], port: PORT, methods: [GET, PUT], path: "/store/*", private: true}
    use: [token]
    effect: allow
credentials:
  token: {from: {store: token}, hosts: [HOSTS], in: [bearer, basic], env: TOKEN}
"#;

#[tokio::test]
async fn a_partial_clone_fetches_what_it_lacks_when_it_is_asked_for() {
    for version in ["HTTP/1.1", "HTTP/2"] {
        let forge = Forge::new(BOTH).await;
        let bare = forge.bare();
        let bare = bare.to_str().unwrap();
        for setting in ["uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"] {
            forge.done(&["-C", bare, "config", setting, "true"]).await;
        }
        let partial = forge.folder().join("partial");
        let partial = partial.to_str().unwrap();
        let version = format!("http.version={version}");
        let url = forge.url();
        let clone = [
            "-c",
            &version,
            "clone",
            "-q",
            "--filter=blob:none",
            "--no-checkout",
        ];
        forge.done(&[&clone[..], &[&url, partial]].concat()).await;
        let lacking = ["-C", partial, "rev-list", "--objects", "--missing=print", "HEAD"];
        let count = |listed: &str| listed.lines().filter(|line| line.starts_with('?')).count();
        assert_ne!(count(&forge.done(&lacking).await), 0);
        let fetched = forge.origin.seen().len();
        forge
            .done(&["-C", partial, "-c", &version, "checkout", "-q"])
            .await;
        assert_eq!(count(&forge.done(&lacking).await), 0);
        assert!(forge.origin.seen().len() > fetched, "the second fetch went out");
        assert!(Path::new(partial).join("file0").exists());
    }
}

#[tokio::test]
async fn a_fetch_of_many_refs_is_sent_in_gzip_and_arrives_so() {
    let forge = Forge::new(BOTH).await;
    for number in 0..60 {
        forge
            .in_work(&["commit", "-q", "--allow-empty", "-m", &number.to_string()])
            .await;
        forge.in_work(&["tag", &format!("v{number}")]).await;
    }
    let bare = forge.bare();
    forge
        .in_work(&["push", "-q", bare.to_str().unwrap(), "--tags"])
        .await;
    for version in ["HTTP/1.1", "HTTP/2"] {
        let before = forge.origin.seen().len();
        let clone = forge.folder().join(version.replace('/', "-"));
        let clone = clone.to_str().unwrap();
        let setting = format!("http.version={version}");
        let url = forge.url();
        forge.done(&["-c", &setting, "clone", "-q", &url, clone]).await;
        let tags = forge.done(&["-C", clone, "tag"]).await;
        assert_eq!(tags.lines().count(), 60);
        let seen = forge.origin.seen();
        let zipped = |head: &String| head.starts_with("POST") && head.contains("content-encoding: gzip");
        assert!(seen[before..].iter().any(zipped), "{seen:#?}");
    }
    let records = forge.stand.records(1).await;
    let fetches = records.iter().filter(|record| {
        record.path.as_deref() == Some("/acme/web.git/git-upload-pack") && record.rule == "fetch"
    });
    assert!(fetches.count() >= 2, "{records:#?}");
}

#[tokio::test]
async fn what_a_forge_says_while_it_works_is_read_while_it_works() {
    let forge = Forge::new(BOTH).await;
    let gate = forge.folder().join("gate");
    let made = std::process::Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    let hook = forge.bare().join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\necho step one >&2\nread word <{}\necho \"step $word\" >&2\n",
        gate.display()
    );
    std::fs::write(&hook, script).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let work = forge.work();
    let mut pushing = forge
        .command(&[
            "-C",
            work.to_str().unwrap(),
            "push",
            "origin",
            "HEAD:refs/heads/agent/one",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(pushing.stderr.take().unwrap()).lines();
    let mut until = async |text: &str| {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return;
            }
        }
        panic!("git never printed `{text}`");
    };
    // The hook waits for the test, and the test for what the hook said before: nothing may wait for more.
    until("remote: step one").await;
    tokio::fs::write(&gate, "two\n").await.unwrap();
    until("remote: step two").await;
    assert!(pushing.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_push_to_a_forge_that_dies_in_the_middle_fails_and_is_recorded_as_torn() {
    for alpn in [BOTH, &["http/1.1"]] {
        let forge = Forge::served(alpn, |root, request| async move {
            if request.method() == Method::POST && request.uri().path().ends_with("/git-receive-pack") {
                return torn(request).await;
            }
            backend(root, request).await
        })
        .await;
        forge.commit("large", &[7; 4096]).await;
        forge.refused(&["origin", "HEAD:refs/heads/agent/one"]).await;
        let records = forge
            .stand
            .records_of(|record| record.method.as_deref() == Some("POST"))
            .await;
        let torn = records.last().unwrap();
        assert_ne!(torn.ending, "complete", "{records:#?}");
        assert_eq!(forge.at_forge("agent/one").await, "");
    }
}

/// Takes the first bytes of a push, begins an answer and breaks off.
async fn torn(request: Request<Incoming>) -> Response<Reply> {
    let first = request.into_body().frame().await;
    let pieces = [
        Ok(Frame::data("0".into())),
        Err(std::io::Error::other("out of order")),
    ];
    let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
    let answer = Response::builder()
        .status(if first.is_some() {
            StatusCode::OK
        } else {
            StatusCode::BAD_REQUEST
        })
        .header("content-type", "application/x-git-receive-pack-result");
    answer.body(body).unwrap()
}

/// Git LFS: the batch API (git-lfs, docs/api/batch.md) at the forge, the objects at another host.
async fn with_large_files(root: PathBuf, request: Request<Incoming>) -> Response<Reply> {
    let path = request.uri().path().to_owned();
    if path.ends_with("/info/lfs/objects/batch") {
        return batch(request).await;
    }
    let Some(object) = path.strip_prefix("/store/") else {
        return backend(root, request).await;
    };
    let file = root.join(object);
    if request
        .headers()
        .get("authorization")
        .is_none_or(|value| *value != format!("Bearer {SECRET}"))
    {
        return status(StatusCode::UNAUTHORIZED, "no token\n");
    }
    match *request.method() {
        Method::PUT => {
            let mut body = request.into_body().into_data_stream();
            let mut whole = Vec::new();
            while let Some(piece) = body.next().await {
                whole.extend_from_slice(&piece.unwrap());
            }
            std::fs::write(file, whole).unwrap();
            status(StatusCode::OK, "")
        }
        _ => Response::new(full(std::fs::read(file).unwrap())),
    }
}

fn status(status: StatusCode, text: &'static str) -> Response<Reply> {
    let mut answer = Response::new(full(text));
    *answer.status_mut() = status;
    answer
}

/// Names the store for each object, with the real token in the header that the client is to send there.
async fn batch(request: Request<Incoming>) -> Response<Reply> {
    let host = request.uri().authority().map(ToString::to_string);
    let host = host.or_else(|| Some(request.headers().get("host")?.to_str().ok()?.to_owned()));
    let store = host.unwrap().replace("allowed.test", "store.test");
    let basic = request.headers().get("authorization").cloned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if !basic.is_some_and(|value| decoded(value.to_str().unwrap()).contains(SECRET)) {
        let mut answer = status(StatusCode::UNAUTHORIZED, "{}");
        let challenge = http::HeaderValue::from_static("Basic realm=\"forge\"");
        answer.headers_mut().insert("lfs-authenticate", challenge);
        return answer;
    }
    let asked: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let operation = asked["operation"].as_str().unwrap();
    let objects: Vec<_> = asked["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let id = object["oid"].as_str().unwrap();
            let action = serde_json::json!({
                "href": format!("https://{store}/store/{id}"),
                "header": {"Authorization": format!("Bearer {SECRET}")},
            });
            serde_json::json!({"oid": id, "size": object["size"], "actions": {operation: action}})
        })
        .collect();
    let answer = serde_json::json!({"transfer": "basic", "objects": objects});
    let answer = Response::builder()
        .header("content-type", "application/vnd.git-lfs+json")
        .body(full(answer.to_string()));
    answer.unwrap()
}

fn decoded(basic: &str) -> String {
    use base64::Engine;
    let pair = basic.strip_prefix("Basic ").unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD.decode(pair).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A forge with large files whose clone holds one; the credential is for these hosts.
async fn forge_with_large_file(hosts: &str) -> (Forge, Vec<u8>) {
    let forge = Forge::served(BOTH, with_large_files).await;
    let policy = format!("{}{}", PUSHES.trim_end(), LARGE_FILES.replace("HOSTS", hosts));
    forge.stand.put(&policy);
    let view = forge.stand.sessions.view("run-1", "").unwrap();
    let placeholder = &view.credentials[0].placeholder;
    let at = forge.stand.at("allowed.test");
    let url = format!("https://x-access-token:{placeholder}@{at}/acme/web.git");
    forge.in_work(&["remote", "set-url", "origin", &url]).await;
    forge.in_work(&["lfs", "install", "--local"]).await;
    forge.in_work(&["config", "lfs.locksverify", "false"]).await;
    forge.in_work(&["config", "lfs.transfer.maxretries", "1"]).await;
    forge.in_work(&["lfs", "track", "*.bin"]).await;
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    forge.commit("large.bin", &content).await;
    (forge, content)
}

#[tokio::test]
async fn large_files_of_git_lfs_go_to_the_store_with_the_token_that_the_forge_gave_for_it() {
    let (forge, content) = forge_with_large_file("allowed.test, store.test").await;
    forge
        .in_work(&["push", "-q", "origin", "HEAD:refs/heads/agent/large"])
        .await;
    let clone = forge.folder().join("clone");
    let url = forge.in_work(&["remote", "get-url", "origin"]).await;
    forge
        .done(&[
            "clone",
            "-q",
            "-b",
            "agent/large",
            url.trim(),
            clone.to_str().unwrap(),
        ])
        .await;
    // What the clone of someone without the filter holds: where the object is, and not the object.
    let pointer = std::fs::read_to_string(clone.join("large.bin")).unwrap();
    assert!(pointer.starts_with("version https://git-lfs"), "{pointer}");
    let folder = clone.to_str().unwrap();
    forge.done(&["-C", folder, "lfs", "install", "--local"]).await;
    forge.done(&["-C", folder, "lfs", "pull"]).await;
    assert!(std::fs::read(clone.join("large.bin")).unwrap() == content);
    let told = format!(
        "{}{}",
        forge.done(&["-C", folder, "config", "--list"]).await,
        pointer
    );
    assert!(!told.contains(SECRET));
    let records = forge.stand.records(1).await;
    let at_store: Vec<_> = records
        .iter()
        .filter(|record| record.host == "store.test" && record.ending == "complete")
        .collect();
    assert_eq!(at_store.len(), 2, "{records:#?}");
    for record in at_store {
        assert_eq!(
            (record.verdict, &record.credentials_used[..]),
            (Verdict::Allowed, &["token".to_owned()][..])
        );
    }
}

#[tokio::test]
async fn a_token_for_the_forge_alone_does_not_reach_the_store_and_git_lfs_prints_why() {
    let (forge, _) = forge_with_large_file("allowed.test").await;
    let work = forge.work();
    let push = [
        "-C",
        work.to_str().unwrap(),
        "push",
        "origin",
        "HEAD:refs/heads/agent/large",
    ];
    let output = forge.git(&push).await;
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    let refusals = forge
        .stand
        .records_of(|record| record.host == "store.test" && record.verdict == Verdict::Denied)
        .await;
    let told = refusals.iter().any(|record| said.contains(&record.id));
    assert!(
        told && said.contains("credential `token`"),
        "{said}\n{refusals:#?}"
    );
    let seen = forge.origin.seen();
    assert!(!seen.iter().any(|head| head.contains("/store/")), "{seen:#?}");
}
