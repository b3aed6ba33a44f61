//! `sallyport login`: an address that logs a browser in, once.
use super::client::Supervisor;
use super::{Failure, Screen};
use crate::state_dir::StateDir;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) async fn run(state: &StateDir, _args: Args) -> Result<ExitCode, Failure> {
    let address = Supervisor::of(state)?.login_address().await?;
    Screen::stdout().line(&address);
    Ok(ExitCode::SUCCESS)
}
