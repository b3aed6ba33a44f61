//! The command line: what it accepts, and which command answers. No thread and no runtime exists before a
//! command wants one.
mod client;
mod conversation;
mod failure;
mod log;
mod login;
mod logs;
mod ls;
mod plain;
pub mod policy;
mod run;
mod say;
mod screen;
mod secret;
mod stop;
mod up;

use crate::state_dir::StateDir;
use clap::{Parser, Subcommand};
pub use failure::{Failure, INVALID_POLICY, RETRY_LATER};
pub use screen::Screen;
use std::future::Future;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs coding agents behind a door: every byte of their traffic is decided by a policy and leaves a record.
#[derive(Debug, Parser)]
#[command(name = "sallyport", version, propagate_version = true)]
struct Cli {
    /// State directory [default: $XDG_STATE_HOME/sallyport, else ~/.local/state/sallyport]
    #[arg(long, global = true, env = "SALLYPORT_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start gateway, engine and web page
    Up(up::Args),
    /// Start a run from a file and show its conversation
    Run(run::Args),
    /// List the runs, newest first
    Ls(ls::Args),
    /// Show a run's conversation
    Logs(logs::Args),
    /// Stop a run and remove its machine
    Stop(stop::Args),
    /// Send a message to a run's agent
    Say(say::Args),
    /// Search the network log
    Log(log::Args),
    /// Check, explain and test policy files
    Policy(policy::Args),
    /// Keep secrets in the gateway's store
    Secret(secret::Args),
    /// Print an address that logs a browser in, once
    Login(login::Args),
}

/// Parses the arguments, runs the command, and tells how it ended: 0, 1 failure, 2 usage, 3 invalid policy, 75
/// try again later.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => {
            Screen::stderr().line(&format!("sallyport: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    prepare(matches!(cli.command, Command::Up(_)));
    let state = cli.state;
    match cli.command {
        Command::Up(args) => block_on(up::run(&state_dir(state)?, args)),
        Command::Run(args) => block_on(run::run(&state_dir(state)?, args)),
        Command::Ls(args) => block_on(ls::run(&state_dir(state)?, args)),
        Command::Logs(args) => block_on(logs::run(&state_dir(state)?, args)),
        Command::Stop(args) => block_on(stop::run(&state_dir(state)?, args)),
        Command::Say(args) => block_on(say::run(&state_dir(state)?, args)),
        Command::Log(args) => block_on(log::run(&state_dir(state)?, args)),
        Command::Policy(args) => policy::run(args, &|| state_dir(state.clone())),
        Command::Secret(args) => block_on(secret::run(&state_dir(state)?, args)),
        Command::Login(args) => block_on(login::run(&state_dir(state)?, args)),
    }
}

fn state_dir(given: Option<PathBuf>) -> Result<StateDir, Failure> {
    Ok(StateDir::locate(given, |name| std::env::var_os(name))?)
}

/// The crypto provider and the log; no thread is started. A supervisor tells what it does, other commands what is wrong.
fn prepare(supervisor: bool) {
    let usual = if supervisor {
        "warn,sallyport_supervisor=info"
    } else {
        "warn"
    };
    // Fails only where a provider is installed already, which serves as well.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let filter = tracing_subscriber::EnvFilter::try_from_env("SALLYPORT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second log cannot be set up; the first one goes on.
    let _set = if std::io::stderr().is_terminal() {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        tracing::subscriber::set_global_default(log.with_target(false).with_ansi(colour).finish())
    } else {
        tracing::subscriber::set_global_default(log.json().finish())
    };
}

fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    let result = runtime.block_on(command);
    // A thread that waits for the terminal must not keep the process.
    runtime.shutdown_background();
    result
}
