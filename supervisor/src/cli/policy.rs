//! `sallyport policy`: checks, explains and tests policy files, by the code that decides in the gateway.
pub mod files;
#[cfg(test)]
mod tests;

use super::{Failure, INVALID_POLICY};
use sallyport_policy::{Overlay, Policy, Problem, Request, Severity, Who};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code for arguments that cannot be understood.
const USAGE: u8 = 2;

/// Arguments of `sallyport policy`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Report every error and warning, with its place and what to do
    Check {
        /// Policy files; what they include is read too
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Tell how a request would be decided, and what each rule makes of it
    Explain {
        /// Policy file
        file: PathBuf,
        /// `GET https://host/path`, `connect host:port` or `opaque host:port`
        #[arg(required = true, num_args = 1.., value_name = "REQUEST")]
        request: Vec<String>,
        /// A fact about the run, such as `team=web` or `labels.tier=gold`
        #[arg(long, value_name = "FACT=VALUE")]
        who: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run the tests that a policy file holds
    Test {
        /// Policy file
        file: PathBuf,
    },
}

/// Runs the command: 0 good, 1 failed tests, 2 a request that cannot be read, 3 an invalid policy.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    execute(args, &mut out).map(ExitCode::from)
}

fn execute(args: Args, out: &mut dyn Write) -> Result<u8, Failure> {
    match args.command {
        Command::Check { files } => check(&files, out),
        Command::Explain {
            file,
            request,
            who,
            json,
        } => explain(&file, &request.join(" "), &read_who(&who)?, json, out),
        Command::Test { file } => test(&file, out),
    }
}

fn check(files: &[PathBuf], out: &mut dyn Write) -> Result<u8, Failure> {
    let mut code = 0;
    for file in files {
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

fn explain(file: &Path, request: &str, who: &Who, json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let request = Request::parse(request).map_err(|fault| Failure::with_code(USAGE, fault.to_string()))?;
    let policy = match compile(file)? {
        Ok(policy) => policy,
        Err(problems) => return invalid(&problems, out),
    };
    let explanation = policy.explain(&request, who, &Overlay::default(), jiff::Timestamp::now());
    if json {
        let text = serde_json::to_string_pretty(&explanation)
            .map_err(|error| Failure::new(format!("the explanation cannot be written: {error}")))?;
        line(out, &text)?;
    } else {
        line(out, &explanation.to_string())?;
    }
    Ok(0)
}

fn test(file: &Path, out: &mut dyn Write) -> Result<u8, Failure> {
    let policy = match compile(file)? {
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
            file.display(),
            counted(result.total, "test")
        ),
    )?;
    Ok(if result.failures.is_empty() { 0 } else { 1 })
}

/// The inner result is the policy's own; the outer one is about reading files.
fn compile(file: &Path) -> Result<Result<Policy, Vec<Problem>>, Failure> {
    let texts = files::load(file).map_err(|fault| Failure::new(fault.to_string()))?;
    Ok(Policy::compile(&texts))
}

fn invalid(problems: &[Problem], out: &mut dyn Write) -> Result<u8, Failure> {
    report(problems, out)?;
    Ok(INVALID_POLICY)
}

/// `team=web`, `labels.tier=gold`.
fn read_who(facts: &[String]) -> Result<Who, Failure> {
    let mut who = Who::default();
    for fact in facts {
        let usage = |why: &str| Failure::with_code(USAGE, format!("`--who {}` {why}", fact.escape_debug()));
        let (name, value) = fact.split_once('=').ok_or_else(|| usage("is not FACT=VALUE"))?;
        if !who.set(name, value.to_owned()) {
            return Err(usage(
                "names no fact: there are run, user, team, repository, environment, machine, parent_run and labels.NAME",
            ));
        }
    }
    Ok(who)
}

fn report(problems: &[Problem], out: &mut dyn Write) -> Result<(), Failure> {
    problems
        .iter()
        .try_for_each(|problem| line(out, &problem.to_string()))
}

fn counted(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn line(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    writeln!(out, "{text}").map_err(|error| Failure::new(format!("standard output: {error}")))
}
