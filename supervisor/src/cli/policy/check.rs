//! `sallyport policy check`: every error and warning of policy files.
use super::layers::{Place, Read};
use super::{counted, line, print_json, sarif, show};
use crate::cli::{Failure, INVALID_POLICY};
use sallyport_policy::{Code, Problem, Severity};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy files; what they include is read too
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Fail where there is a warning, too
    #[arg(long)]
    deny_warnings: bool,
    /// Warn of grants that may last longer than this, such as `24h`
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = longest_run)]
    longest_run: jiff::SignedDuration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Format {
    /// For people, with the line of each problem
    #[default]
    Text,
    /// All problems as JSON
    Json,
    /// SARIF 2.1.0, for code review
    Sarif,
}

/// What was found in one policy and the files that it includes.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    errors: usize,
    warnings: usize,
    problems: Vec<Problem>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let mut all = Vec::new();
    for file in &args.files {
        let read = args.place.read(file)?;
        let checked = Checked::new(file.display().to_string(), &read, args.longest_run);
        if args.format == Format::Text {
            show(&checked.problems, &read.texts, out)?;
            line(out, &checked.summary())?;
        }
        all.push((checked, read.texts));
    }
    match args.format {
        Format::Text => {}
        Format::Json => print_json(&all.iter().map(|(checked, _)| checked).collect::<Vec<_>>(), out)?,
        Format::Sarif => {
            let found = all
                .iter()
                .map(|(checked, texts)| (checked.problems.as_slice(), texts.as_slice()));
            print_json(&sarif::log(found), out)?;
        }
    }
    let fails = |checked: &Checked| checked.errors > 0 || (args.deny_warnings && checked.warnings > 0);
    match all.iter().any(|(checked, _)| fails(checked)) {
        true => Ok(INVALID_POLICY),
        false => Ok(0),
    }
}

impl Checked {
    fn new(file: String, read: &Read, longest_run: jiff::SignedDuration) -> Self {
        let problems = match &read.policy {
            Ok(policy) => {
                // Those of the default length of a run make place for those of the length that was asked for.
                let known = policy.warnings().iter();
                let mut problems: Vec<Problem> = known
                    .filter(|problem| problem.code != Code::LongGrant)
                    .cloned()
                    .collect();
                problems.extend(policy.long_grants(longest_run));
                problems.extend(policy.lints(jiff::Timestamp::now()));
                problems
            }
            Err(problems) => problems.clone(),
        };
        let count = |severity| {
            let of = problems.iter().filter(|problem| problem.severity == severity);
            of.count()
        };
        Self {
            file,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            problems,
        }
    }

    fn summary(&self) -> String {
        let Self {
            file,
            errors,
            warnings,
            ..
        } = self;
        match errors {
            0 => format!("{file}: good, {}", counted(*warnings, "warning")),
            _ => format!("{file}: {}", counted(*errors, "error")),
        }
    }
}

fn longest_run(text: &str) -> Result<jiff::SignedDuration, String> {
    sallyport_policy::read_duration(text).ok_or_else(|| "write for example `24h` or `7d`".to_owned())
}
