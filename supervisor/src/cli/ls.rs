//! `sallyport ls`: runs, newest first.
use super::client::Supervisor;
use super::screen::Style;
use super::{Failure, Screen, plain};
use crate::runs::{Outcome, RunState, RunSummary};
use crate::state_dir::StateDir;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the runs as JSON, one a line
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    let runs = Supervisor::of(state)?.runs().await?;
    let screen = Screen::stdout();
    if args.json {
        for run in &runs {
            let text = serde_json::to_string(run)
                .map_err(|error| Failure::new(format!("a run cannot be shown: {error}")))?;
            screen.line(&text);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        screen.line("no runs yet; start one with `sallyport run FILE`");
        return Ok(ExitCode::SUCCESS);
    }
    let head = format!(
        "{:36}  {:20}  {:>5}  {:>7}  {:9}  TITLE",
        "RUN", "STARTED", "STEPS", "REFUSED", "STATE"
    );
    screen.line(&screen.styled(Style::Dim, &head));
    for run in &runs {
        screen.line(&row(&screen, run));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(screen: &Screen, run: &RunSummary) -> String {
    let (state, style) = match &run.state {
        RunState::Queued => ("queued", Style::Dim),
        RunState::Running { .. } => ("running", Style::Cyan),
        RunState::Held { .. } => ("held", Style::Yellow),
        RunState::Ended {
            outcome: Outcome::Done,
            ..
        } => ("done", Style::Green),
        RunState::Ended {
            outcome: Outcome::Failed,
            ..
        } => ("failed", Style::Red),
        RunState::Ended {
            outcome: Outcome::Stopped,
            ..
        } => ("stopped", Style::Yellow),
    };
    let started = run.created_at.strftime("%Y-%m-%d %H:%M:%SZ");
    let fixed = format!(
        "{:36}  {started:20}  {:>5}  {:>7}  ",
        run.id, run.steps, run.refusals
    );
    let room = screen.width().saturating_sub(fixed.len() + 11).max(12);
    let title = plain::cut(&plain::line(&run.title), room);
    format!("{fixed}{}  {title}", screen.styled(style, &format!("{state:9}")))
}
