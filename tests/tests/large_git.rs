//! Git with a repository that is larger than the gateway may become: cloned and pushed by the real programs (case T03).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]
use sallyport_harness::{Stage, Way};
use std::io::Read;
use std::path::Path;
use std::process::Output;

/// What the repository holds, in files of such a size that nothing of it can be made smaller.
const FILES: u64 = 4;
const FILE_BYTES: u64 = 16 << 20;
/// What the gateway may grow by while all of it passes, several times: half of it. Buffers take some MiB, and its allocator keeps for a
/// while what was given back.
const GROWTH_KIB: u64 = FILES * FILE_BYTES / 2 / 1024;

const POLICY: &str = r#"version: 1
name: large
default: deny
credentials:
  forge: {from: {store: forge}, hosts: [allowed.test], in: [basic]}
rules:
  - id: fetch
    to: {host: [allowed.test, 127.0.0.0/8], port: 8443, protocol: git, repository: "acme/*", access: read, private: true}
    use: [forge]
    effect: allow
  - id: push
    to: {host: [allowed.test, 127.0.0.0/8], port: 8443, protocol: git, repository: "acme/*", access: write, refs: ["agent/**"], force: false, private: true}
    use: [forge]
    effect: allow
"#;

/// A file of which no coding makes anything smaller.
fn noise(path: &Path) {
    let mut random = std::fs::File::open("/dev/urandom").unwrap().take(FILE_BYTES);
    std::io::copy(&mut random, &mut std::fs::File::create(path).unwrap()).unwrap();
}

/// A way out, and how git takes it.
struct Large {
    way: Way,
    url: String,
    proxy: String,
}

impl Large {
    fn new() -> Self {
        let stage = Stage::new().unwrap();
        let content = stage.path("home/content");
        std::fs::create_dir(&content).unwrap();
        for number in 0..FILES {
            noise(&content.join(format!("noise{number}")));
        }
        let repository = format!("acme/large.git={}", content.display());
        let way = Way::open(stage, &["--repository", &repository], POLICY).unwrap();
        std::fs::write(way.stage.path("home/ca.pem"), &way.view.ca_pem).unwrap();
        let placeholder = &way.view.credentials[0].placeholder;
        Self {
            url: format!("https://x:{placeholder}@allowed.test:8443/acme/large.git"),
            proxy: format!("http.proxy=http://run-1:{}@{}", way.view.proxy_token, way.proxy),
            way,
        }
    }

    /// One git command through the gateway, which must succeed.
    fn git(&self, arguments: &[&str]) {
        let mut git = self.way.stage.ordinary(Path::new("git"));
        git.args(["-c", &self.proxy, "-c", "http.proxyAuthMethod=basic"])
            .arg("-c")
            .arg(format!(
                "http.sslCAInfo={}",
                self.way.stage.path("home/ca.pem").display()
            ))
            .args([
                "-c",
                "user.name=A",
                "-c",
                "user.email=a@sallyport.test",
                "-c",
                "core.compression=0",
            ])
            .args(arguments)
            .env("GIT_TERMINAL_PROMPT", "0");
        let output = git.output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", text(&output));
    }
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat()
}

#[test]
fn what_is_cloned_and_pushed_may_be_larger_than_what_the_gateway_holds_of_it() {
    let large = Large::new();
    large.git(&["ls-remote", &large.url]);
    let before = large.way.peak_kib().unwrap();
    for version in ["HTTP/1.1", "HTTP/2"] {
        let version_setting = format!("http.version={version}");
        let clone = large.way.stage.path("home").join(version.replace('/', "-"));
        let clone = clone.to_str().unwrap();
        large.git(&["-c", &version_setting, "clone", "-q", &large.url, clone]);
        // The push brings a file as large with it, and git sends it in chunks, not knowing its length.
        noise(&Path::new(clone).join("more"));
        large.git(&["-C", clone, "add", "--all"]);
        large.git(&["-C", clone, "commit", "-q", "-m", "More"]);
        let branch = format!("HEAD:refs/heads/agent/{}", version.replace('/', "-"));
        large.git(&[
            "-C",
            clone,
            "-c",
            &version_setting,
            "push",
            "-q",
            "origin",
            &branch,
        ]);
    }
    let grown = large.way.peak_kib().unwrap() - before;
    assert!(grown < GROWTH_KIB, "the gateway grew by {grown} KiB");
}
