//! `sallyport stop`: ends a run.
use super::client::Supervisor;
use super::{Failure, Screen, plain};
use crate::state_dir::StateDir;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run's id
    run: String,
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    Supervisor::of(state)?.stop(&args.run).await?;
    Screen::stdout().line(&format!("run {} is being stopped", plain::line(&args.run)));
    Ok(ExitCode::SUCCESS)
}
