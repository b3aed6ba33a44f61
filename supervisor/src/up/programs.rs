//! The programs beside this one: found next to it, and kept fresh when `cargo run` started it from a checkout.
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The gateway.
pub const GATEWAY: &str = "sallyport-gateway";
/// The part that runs inside a machine.
pub const SHIM: &str = "sallyport-shim";
/// Needed by examples alone.
const ORIGIN: &str = "sallyport-origin";

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Nobody built or installed it.
    #[error("`{program}` is missing: it belongs beside `sallyport`, at `{}`; install it there (from a checkout: `cargo build --workspace --bins`)", path.display())]
    Missing {
        /// Its name.
        program: &'static str,
        /// Where it belongs.
        path: PathBuf,
    },
    /// Cargo did not build it.
    #[error("the programs beside `sallyport` cannot be built: {0}")]
    Build(String),
    /// The system does not tell where we are.
    #[error("the system does not tell where this program is: {0}")]
    Where(#[from] std::io::Error),
}

/// Where a program of ours is.
pub fn sibling(program: &'static str) -> Result<PathBuf, ProgramError> {
    let path = own_folder()?.join(program);
    if path.is_file() {
        Ok(path)
    } else {
        Err(ProgramError::Missing { program, path })
    }
}

/// A program by name: of ours where there is one, else what the system finds.
pub fn beside_or_in_path(program: &str) -> String {
    let beside = own_folder().map(|folder| folder.join(program));
    match beside {
        Ok(path) if !program.contains('/') && path.is_file() => path.display().to_string(),
        _ => program.to_owned(),
    }
}

fn own_folder() -> Result<PathBuf, std::io::Error> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_path_buf())
}

/// Builds the programs beside this one where `cargo run` of this workspace started it; does nothing elsewhere.
/// Cargo's own output is shown, and it does nothing where all is fresh.
pub async fn refresh() -> Result<(), ProgramError> {
    let Some(build) = build(&own_folder()?, |name| std::env::var_os(name)) else {
        return Ok(());
    };
    let status = tokio::process::Command::new(&build.cargo)
        .args(&build.arguments)
        .current_dir(&build.folder)
        .stdin(std::process::Stdio::null())
        .status()
        .await
        .map_err(|error| ProgramError::Build(format!("`{}`: {error}", build.cargo.display())))?;
    if status.success() {
        Ok(())
    } else {
        Err(ProgramError::Build(format!(
            "cargo ended with {status}; its messages say why"
        )))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Build {
    cargo: PathBuf,
    arguments: Vec<OsString>,
    folder: PathBuf,
}

/// How to build, where `cargo run` started us: it names itself and our package's folder in the environment. The
/// whole workspace is named, as `cargo run` does, so that both choose the same features and nothing is built twice.
fn build(own: &Path, variable: impl Fn(&str) -> Option<OsString>) -> Option<Build> {
    let cargo = PathBuf::from(variable("CARGO")?);
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let ours = variable("CARGO_PKG_NAME")? == env!("CARGO_PKG_NAME") && folder.join("Cargo.toml").is_file();
    if !ours {
        return None;
    }
    let profile = match own.file_name()?.to_str()? {
        "debug" => "dev",
        other => other,
    };
    let mut arguments: Vec<OsString> = ["build", "--workspace", "--profile", profile, "--target-dir"]
        .map(OsString::from)
        .into();
    arguments.push(own.parent()?.into());
    for program in [GATEWAY, SHIM, ORIGIN] {
        arguments.extend(["--bin".into(), program.into()]);
    }
    Some(Build {
        cargo,
        arguments,
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cargo_run(name: &str) -> Option<OsString> {
        match name {
            "CARGO" => Some("/bin/cargo".into()),
            "CARGO_MANIFEST_DIR" => Some(env!("CARGO_MANIFEST_DIR").into()),
            "CARGO_PKG_NAME" => Some(env!("CARGO_PKG_NAME").into()),
            _ => None,
        }
    }

    #[test]
    fn cargo_run_builds_what_is_beside_in_the_same_profile() {
        let build = build(Path::new("/t/release"), cargo_run).unwrap();
        let arguments: Vec<_> = build.arguments.iter().map(|one| one.to_string_lossy()).collect();
        let expected = "build --workspace --profile release --target-dir /t --bin sallyport-gateway --bin sallyport-shim --bin sallyport-origin";
        assert_eq!(arguments.join(" "), expected);
    }

    #[test]
    fn an_installed_program_builds_nothing() {
        assert_eq!(build(Path::new("/usr/bin"), |_| None), None);
        let other = |name: &str| match name {
            "CARGO_PKG_NAME" => Some("something-else".into()),
            other => cargo_run(other),
        };
        assert_eq!(build(Path::new("/t/debug"), other), None);
    }
}
