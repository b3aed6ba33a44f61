//! `sallyport policy learn`: proposes the policy that would have allowed what a run did.
use super::recorded::{Span, fold};
use super::{compile, counted, invalid};
use crate::cli::Failure;
use crate::state_dir::StateDir;
use sallyport_policy::{Learned, Learner};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run to learn from; its policy should be in `mode: observe`
    #[arg(long, value_name = "ID")]
    run: String,
    /// The policy that stays beside: what it allows is not proposed again, and what a rule of it refuses not at all
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Count what was refused as wanted, too
    #[arg(long)]
    denied: bool,
    /// Write the policy here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args, state: &StateDir, out: &mut dyn Write) -> Result<u8, Failure> {
    let base = match args.base.as_deref().map(compile).transpose()? {
        Some(Err(problems)) => return invalid(&problems, out),
        Some(Ok(policy)) => Some(policy),
        None => None,
    };
    let learner = Learner::new(base, args.denied);
    let mut learned = Learned::default();
    let span = Span {
        since: jiff::Timestamp::UNIX_EPOCH,
        until: None,
        run: Some(args.run.clone()),
    };
    fold(
        state,
        &span,
        |lines, people| learner.lines(lines, people),
        |next| learned.add(next),
    )?;
    let proposal = learner.propose(&learned, &args.run);
    if proposal.requests + proposal.left_out == 0 {
        return Err(Failure::new(format!(
            "the network log has nothing of run `{}` to learn from; see `sallyport log --run ID`, and add --denied for what was refused",
            args.run.escape_debug()
        )));
    }
    let Some(path) = &args.output else {
        return match out.write_all(proposal.yaml.as_bytes()) {
            Ok(()) => Ok(0),
            Err(error) => Err(Failure::new(format!("standard output: {error}"))),
        };
    };
    std::fs::write(path, &proposal.yaml)
        .map_err(|error| Failure::new(format!("`{}` cannot be written: {error}", path.display())))?;
    let count = |count: u64, what| counted(usize::try_from(count).unwrap_or(usize::MAX), what);
    super::line(
        out,
        &format!(
            "{}: {} for {}; {} left out",
            path.display(),
            counted(proposal.rules, "rule"),
            count(proposal.requests, "request"),
            count(proposal.left_out, "request")
        ),
    )?;
    Ok(0)
}
