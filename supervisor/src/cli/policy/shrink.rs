//! `sallyport policy shrink`: what nobody used of a policy.
use super::recorded::{Span, fold};
use super::{files, invalid, line};
use crate::cli::Failure;
use crate::state_dir::StateDir;
use sallyport_policy::{Shrink, Usage};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The policy
    file: PathBuf,
    #[command(flatten)]
    span: Span,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, state: &StateDir, out: &mut dyn Write) -> Result<u8, Failure> {
    let texts = files::load(&args.file).map_err(|fault| Failure::new(fault.to_string()))?;
    let shrink = match Shrink::new(&texts, args.span.since) {
        Ok(shrink) => shrink,
        Err(problems) => return invalid(&problems, out),
    };
    let mut usage = Usage::default();
    // All of the log: what was used before tells when it was last.
    let span = Span {
        since: jiff::Timestamp::UNIX_EPOCH,
        ..args.span.clone()
    };
    fold(
        state,
        &span,
        |lines, people| shrink.lines(lines, people),
        |next| usage.add(next),
    )?;
    let report = shrink.report(&usage);
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(format!("the report cannot be shown: {error}")))?;
        line(out, &text)?;
    } else {
        line(out, report.to_string().trim_end())?;
    }
    Ok(0)
}
