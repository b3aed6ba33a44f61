//! `sallyport secret`: values go from the terminal or a file straight to the gateway's own program; they never pass
//! through this one.
use super::Failure;
use crate::state_dir::StateDir;
use crate::up::gateway_command;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Keep a secret under a name; its value is read from standard input
    Set {
        /// Name, as policies say it in `from: {store: NAME}`
        name: String,
    },
    /// List the names
    List,
    /// Remove a secret
    Rm {
        /// Name
        name: String,
    },
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    state.prepare()?;
    let words = match &args.command {
        Command::Set { name } => vec!["set", name],
        Command::List => vec!["list"],
        Command::Rm { name } => vec!["rm", name],
    };
    let status = gateway(state, &words, Stdio::inherit()).await?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Ok(ExitCode::from(code))
}

/// Keeps the content of a file under a name.
pub(super) async fn set_from_file(state: &StateDir, name: &str, file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let open = std::fs::File::open(file)
        .map_err(|error| Failure::new(format!("the secret `{name}`: `{shown}` cannot be read: {error}")))?;
    let status = gateway(state, &["set", name], Stdio::from(open)).await?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the secret `{name}` was not kept ({status})"
    )))
}

async fn gateway(state: &StateDir, words: &[&str], input: Stdio) -> Result<ExitStatus, Failure> {
    let mut command = gateway_command(state)?;
    command
        .arg("secret")
        .args(words)
        .stdin(input)
        .status()
        .await
        .map_err(|error| Failure::new(format!("`sallyport-gateway` cannot be started: {error}")))
}
