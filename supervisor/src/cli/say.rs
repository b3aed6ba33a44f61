//! `sallyport say`: a message to a run's agent, seen at its next step.
use super::Failure;
use super::client::Supervisor;
use crate::state_dir::StateDir;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run's id
    run: String,
    /// The message
    #[arg(required = true, num_args = 1..)]
    text: Vec<String>,
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    Supervisor::of(state)?
        .say(&args.run, &args.text.join(" "))
        .await?;
    Ok(ExitCode::SUCCESS)
}
