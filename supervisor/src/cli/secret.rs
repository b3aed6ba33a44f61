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
        Command::Set { name } => vec!["secret", "set", name],
        Command::List => vec!["secret", "list"],
        Command::Rm { name } => vec!["secret", "rm", name],
    };
    gateway(state, &words, Stdio::inherit()).await
}

/// Keeps the content of a file under a name.
pub(super) async fn set_from_file(state: &StateDir, name: &str, file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let open = std::fs::File::open(file)
        .map_err(|error| Failure::new(format!("the secret `{name}`: `{shown}` cannot be read: {error}")))?;
    let status = status(state, &["secret", "set", name], Stdio::from(open)).await?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the secret `{name}` was not kept ({status})"
    )))
}

/// Runs a command of the gateway's program on the terminal; its exit code is ours.
pub(super) async fn gateway(state: &StateDir, words: &[&str], input: Stdio) -> Result<ExitCode, Failure> {
    let code = status(state, words, input).await?.code();
    Ok(ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
    ))
}

async fn status(state: &StateDir, words: &[&str], input: Stdio) -> Result<ExitStatus, Failure> {
    gateway_command(state)?
        .args(words)
        .stdin(input)
        .status()
        .await
        .map_err(|error| Failure::new(format!("`sallyport-gateway` cannot be started: {error}")))
}
