//! npm installs scoped packages from a registry, whichever way it serves their archives (case T02).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::{POLICY, Stand};
use base64::Engine;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use sallyport_gateway::control::types::Verdict;
use sha2::{Digest, Sha512};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// How an archive is served: as it is, in a coding of HTTP's besides its own, or without its length.
const WAYS: [&str; 3] = ["plain", "coded", "lengthless"];

/// A package of that name with a file that gets hardly smaller, as npm's own archives are made.
fn archive(name: &str) -> Bytes {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("package");
    std::fs::create_dir(&package).unwrap();
    let manifest = serde_json::json!({"name": format!("@acme/{name}"), "version": "1.0.0"});
    std::fs::write(package.join("package.json"), manifest.to_string()).unwrap();
    let noise: Vec<u8> = (0..300_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(package.join("data.bin"), noise).unwrap();
    let packed = std::process::Command::new("tar")
        .arg("-C")
        .arg(folder.path())
        .args(["-cz", "package"])
        .output()
        .unwrap();
    assert!(packed.status.success());
    packed.stdout.into()
}

/// Answers as a registry: `/@acme%2fNAME` describes a package, `/NAME.tgz` is its archive.
fn serve(archives: &[(&'static str, Bytes); 3], request: &Request<Incoming>) -> Response<Reply> {
    let path = request.uri().path().to_ascii_lowercase();
    if let Some(name) = path.strip_prefix("/@acme%2f") {
        let authority = request.uri().authority().map(ToString::to_string);
        let host = authority.or_else(|| Some(request.headers().get("host")?.to_str().ok()?.to_owned()));
        let archive = &archives.iter().find(|(known, _)| *known == name).unwrap().1;
        let sum = base64::engine::general_purpose::STANDARD.encode(Sha512::digest(archive));
        let version = serde_json::json!({"name": format!("@acme/{name}"), "version": "1.0.0", "dist": {
            "tarball": format!("https://{}/{name}.tgz", host.unwrap()), "integrity": format!("sha512-{sum}"),
        }});
        let whole = serde_json::json!({"name": format!("@acme/{name}"), "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}});
        return Response::new(full(whole.to_string()));
    }
    let name = path.trim_start_matches('/').trim_end_matches(".tgz");
    let archive = archives
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap()
        .1
        .clone();
    let answer = Response::builder().header("content-type", "application/x-gzip");
    match name {
        "coded" => {
            let mut coder = GzEncoder::new(Vec::new(), Compression::fast());
            coder.write_all(&archive).unwrap();
            let coded = coder.finish().unwrap();
            answer
                .header("content-encoding", "gzip")
                .body(full(coded))
                .unwrap()
        }
        "lengthless" => {
            let pieces: Vec<_> = archive
                .chunks(7000)
                .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
                .collect();
            answer
                .body(StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync())
                .unwrap()
        }
        _ => answer.body(full(archive)).unwrap(),
    }
}

async fn npm(stand: &Stand, folder: &Path) -> std::process::Output {
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    std::fs::write(folder.join("package.json"), "{}").unwrap();
    let proxy = format!("http://run-1:{}@{}", stand.token, stand.proxy);
    tokio::process::Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--fetch-retries=0",
        ])
        .args(WAYS.map(|name| format!("@acme/{name}")))
        .arg(format!("--registry=https://{}/", stand.at("allowed.test")))
        .args([
            format!("--https-proxy={proxy}"),
            format!("--cafile={}", ca.display()),
        ])
        .arg(format!("--cache={}", folder.join("cache").display()))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .env("HOME", folder)
        .current_dir(folder)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn scoped_packages_are_installed_whole_in_whichever_way_their_archives_are_served() {
    let archives = Arc::new(WAYS.map(|name| (name, archive(name))));
    for alpn in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let (roots, serving) = (Roots::new(), archives.clone());
        let origin = Origin::http(&roots, alpn, move |request| {
            let answer = serve(&serving, &request);
            async move { answer }
        })
        .await;
        let stand = Stand::new(&roots, origin.port).await;
        // Names in a path of npm's have an encoded slash: a rule that looks at paths would have to say so.
        stand.put(&POLICY.replacen(", path: \"/**\"", "", 1));
        let folder = tempfile::tempdir().unwrap();
        let output = npm(&stand, folder.path()).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        for name in WAYS {
            let data = folder.path().join(format!("node_modules/@acme/{name}/data.bin"));
            assert_eq!(std::fs::metadata(data).unwrap().len(), 300_000, "{name}");
        }
        let records = stand.records(6).await;
        assert!(
            records.iter().all(|record| record.verdict == Verdict::Allowed),
            "{records:#?}"
        );
    }
}
