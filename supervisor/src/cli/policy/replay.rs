//! `sallyport policy replay`: what a policy would have made of recorded traffic.
use super::layers::Place;
use super::recorded::{Span, fold};
use super::{broken, line};
use crate::cli::{Failure, Screen};
use crate::state_dir::StateDir;
use sallyport_policy::Replay;
use std::io::Write;
use std::path::PathBuf;

/// Exit code where something would newly be blocked or asked for.
const HURTS: u8 = 4;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The policy to try
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    span: Span,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
    /// Keep at most so many requests of each group as examples
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=1000))]
    examples: u16,
}

pub(super) fn run(args: &Args, state: &StateDir, out: &mut dyn Write) -> Result<u8, Failure> {
    let read = args.place.read(&args.file)?;
    let policy = match read.policy {
        Ok(policy) => policy,
        Err(problems) => return broken(&problems, &read.texts, out),
    };
    let replay = Replay::new(policy, usize::from(args.examples));
    let mut tally = replay.tally();
    fold(
        state,
        &args.span,
        |lines, people| replay.lines(lines, people),
        |next| tally.add(next),
    )?;
    let report = replay.report(tally);
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(format!("the report cannot be shown: {error}")))?;
        line(out, &text)?;
    } else {
        let width = Screen::stdout().width();
        line(out, format!("{report:width$}").trim_end())?;
    }
    Ok(if report.hurts() { HURTS } else { 0 })
}
