//! `sallyport policy check`: every error and warning of policy files.
use super::{compile, counted, line, report};
use crate::cli::{Failure, INVALID_POLICY};
use sallyport_policy::Severity;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy files; what they include is read too
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let mut code = 0;
    for file in &args.files {
        match compile(file)? {
            Ok(policy) => {
                report(policy.warnings(), out)?;
                let warnings = counted(policy.warnings().len(), "warning");
                line(out, &format!("{}: good, {warnings}", file.display()))?;
            }
            Err(problems) => {
                report(&problems, out)?;
                let errors = problems
                    .iter()
                    .filter(|problem| problem.severity == Severity::Error)
                    .count();
                line(out, &format!("{}: {}", file.display(), counted(errors, "error")))?;
                code = INVALID_POLICY;
            }
        }
    }
    Ok(code)
}
