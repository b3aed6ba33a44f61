//! `sallyport logs`: a run's conversation, so far or live.
use super::client::Supervisor;
use super::conversation::Teller;
use super::{Failure, Screen};
use crate::conversation::Entry;
use crate::state_dir::StateDir;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run's id
    run: String,
    /// Go on until the run ends
    #[arg(long, short)]
    follow: bool,
    /// Print the entries as JSON, one a line
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    let supervisor = Supervisor::of(state)?;
    let screen = Screen::stdout();
    let mut teller = Teller::new(screen);
    let mut show = |entry: &Entry| match (args.json, serde_json::to_string(entry)) {
        (true, Ok(text)) => screen.line(&text),
        (true, Err(error)) => tracing::warn!(%error, "an entry cannot be shown"),
        (false, _) => teller.tell(entry),
    };
    if args.follow {
        super::conversation::follow_to_end(&supervisor, &args.run, &mut show).await?;
    } else {
        supervisor.entries(&args.run).await?.iter().for_each(show);
    }
    Ok(ExitCode::SUCCESS)
}
