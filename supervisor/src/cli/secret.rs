//! `sallyport secret`: values go from the terminal or a file straight to the gateway's own program; they never pass
//! through this one.
use super::Failure;
use crate::state_dir::StateDir;
use crate::up::gateway_command;
use std::path::{Path, PathBuf};
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
    /// Replace a value; the new one is read from standard input, and runs use it at once
    Rotate {
        /// Name
        name: String,
    },
    /// Seal the store under another key: a new key file, or a passphrase (`SALLYPORT_PASSPHRASE_FILE`, a systemd credential, or the
    /// terminal give it from then on)
    Rekey {
        /// Under a passphrase, which the terminal asks for
        #[arg(long)]
        passphrase: bool,
        /// Under the passphrase in this file
        #[arg(long, value_name = "FILE", conflicts_with = "passphrase")]
        new_passphrase_file: Option<PathBuf>,
    },
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    state.prepare()?;
    let file;
    let words = match &args.command {
        Command::Set { name } => vec!["secret", "set", name],
        Command::List => vec!["secret", "list"],
        Command::Rm { name } => vec!["secret", "rm", name],
        Command::Rotate { name } => vec!["secret", "rotate", name],
        Command::Rekey {
            new_passphrase_file: Some(path),
            ..
        } => {
            file = path.to_string_lossy();
            vec!["secret", "rekey", "--new-passphrase-file", &file]
        }
        Command::Rekey { passphrase: true, .. } => vec!["secret", "rekey", "--passphrase"],
        Command::Rekey { .. } => vec!["secret", "rekey"],
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
