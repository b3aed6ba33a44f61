//! `sallyport logs`: a run's conversation, so far or live.
use super::client::Supervisor;
use super::conversation::Teller;
use super::{Failure, Screen};
use crate::conversation::{Entry, What};
use crate::runs::RunState;
use crate::state_dir::StateDir;
use std::ops::ControlFlow;
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
    let known = supervisor.run(&args.run).await?;
    let screen = Screen::stdout();
    let mut teller = Teller::new(screen);
    let mut show = |entry: &Entry| match (args.json, serde_json::to_string(entry)) {
        (true, Ok(text)) => screen.line(&text),
        (true, Err(error)) => tracing::warn!(%error, "an entry cannot be shown"),
        (false, _) => teller.tell(entry),
    };
    let ended = matches!(known.state, RunState::Ended { .. });
    if args.follow || ended {
        super::conversation::follow_to_end(&supervisor, &args.run, &mut show).await?;
    } else {
        past(&supervisor, &args.run, &mut show).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what there is now. The stream itself does not say where the past ends: a moment without entries does.
async fn past(supervisor: &Supervisor, run: &str, show: &mut impl FnMut(&Entry)) -> Result<(), Failure> {
    let (send, mut entries) = tokio::sync::mpsc::unbounded_channel();
    let (supervisor, run) = (supervisor.clone(), run.to_owned());
    let reading = tokio::spawn(async move {
        supervisor
            .follow(&run, 0, |entry| match send.send(entry) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
            .await
    });
    let quiet = std::time::Duration::from_millis(500);
    while let Ok(Some(entry)) = tokio::time::timeout(quiet, entries.recv()).await {
        let over = matches!(entry.what, What::Ended { .. });
        show(&entry);
        if over {
            break;
        }
    }
    reading.abort();
    Ok(())
}
