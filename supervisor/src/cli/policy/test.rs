//! `sallyport policy test`: runs the tests that a policy file holds.
use super::{compile, counted, invalid, line, report};
use crate::cli::Failure;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy file
    file: PathBuf,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let policy = match compile(&args.file)? {
        Ok(policy) => policy,
        Err(problems) => return invalid(&problems, out),
    };
    let result = policy.run_tests();
    report(&result.failures, out)?;
    let passed = result.total - result.failures.len();
    line(
        out,
        &format!(
            "{}: {passed} of {} passed",
            args.file.display(),
            counted(result.total, "test")
        ),
    )?;
    Ok(if result.failures.is_empty() { 0 } else { 1 })
}
