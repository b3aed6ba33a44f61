//! `sallyport policy diff`: what a change of policy changes, in terms of traffic.
use super::layers::Place;
use super::{broken, line, print_json};
use crate::cli::Failure;
use std::io::Write;
use std::path::PathBuf;

/// Exit code where the policies differ, as of a dry run that would change something.
const DIFFERENT: u8 = 4;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy file as it is; what it includes is read too
    before: PathBuf,
    /// Policy file as it would be
    after: PathBuf,
    #[command(flatten)]
    place: Place,
    /// Instant from which windows of time are compared over a year; now where it is not given
    #[arg(long, value_name = "TIMESTAMP")]
    at: Option<jiff::Timestamp>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let before = args.place.read(&args.before)?;
    let after = args.place.read(&args.after)?;
    let (old, new) = match (before.policy, after.policy) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(problems), _) => return broken(&problems, &before.texts, out),
        (_, Err(problems)) => return broken(&problems, &after.texts, out),
    };
    let diff = old.diff(&new, args.at.unwrap_or_else(jiff::Timestamp::now));
    if args.json {
        print_json(&diff, out)?;
    } else {
        line(out, &diff.to_string())?;
    }
    Ok(if diff.is_empty() { 0 } else { DIFFERENT })
}
