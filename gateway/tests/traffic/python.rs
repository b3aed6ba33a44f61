//! Python packages that tests use, from the package registry.
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A folder with a package in this version, for `PYTHONPATH`; fetched once into the target folder.
pub(crate) async fn python_package(name: &str, version: &str) -> PathBuf {
    python_packages(&format!("{name}-{version}"), &[&format!("{name}=={version}")]).await
}

/// A folder of this name with packages.
pub(crate) async fn python_packages(folder: &str, packages: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = target.join(folder);
    if !folder.is_dir() {
        let fetched = tempfile::tempdir_in(target).unwrap();
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "-q", "--only-binary=:all:", "--target"])
            .arg(fetched.path())
            .args(packages)
            .output()
            .await
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // Another run may have been quicker.
        let _kept = std::fs::rename(fetched.keep(), &folder);
    }
    folder
}

/// AWS's services by moto, which checks each signature.
pub(crate) struct Moto {
    _server: Child,
    /// Its first line: its port, and the keys that it knows.
    pub(crate) told: serde_json::Value,
    /// For `PYTHONPATH`.
    pub(crate) packages: PathBuf,
}

/// Starts it, with a secret of this value where there is one.
pub(crate) async fn moto(secret: Option<&str>) -> Moto {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traffic/aws_moto.py");
    let packages = [
        "moto[s3]==5.2.2",
        "flask==3.1.3",
        "flask-cors==6.0.5",
        "PyYAML==6.0.3",
    ];
    let folder = python_packages("moto-5.2.2-yaml", &packages).await;
    let mut command = Command::new("python3");
    command
        .args([script, "serve"])
        .args(secret)
        .env("PYTHONPATH", &folder);
    let (server, line) = serving(&mut command).await;
    Moto {
        _server: server,
        told: serde_json::from_str(&line).unwrap(),
        packages: folder,
    }
}

/// Runs a server that says its first line once it serves.
pub(crate) async fn serving(command: &mut Command) -> (Child, String) {
    let mut server = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    (server, line)
}
