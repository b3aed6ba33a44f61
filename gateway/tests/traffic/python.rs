//! Python packages that tests use, from the package registry.
use std::path::{Path, PathBuf};
use tokio::process::Command;

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
