//! `sallyport policy`: checks, compares, explains and tests policy files, by the code that decides in the gateway.
mod check;
mod diff;
mod explain;
pub mod files;
mod layers;
mod learn;
mod preflight;
mod presets;
mod recorded;
mod replay;
mod rollout;
mod sarif;
mod schema;
mod shrink;
mod test;
#[cfg(test)]
mod tests;

use super::{Failure, INVALID_POLICY};
use crate::state_dir::StateDir;
use sallyport_policy::{Policy, PolicyText, Problem, Who};
use std::io::Write;
use std::path::Path;
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
    Check(check::Args),
    /// Tell what another version of a policy would newly allow, deny or ask
    Diff(diff::Args),
    /// Tell how a request would be decided, and what each rule makes of it
    Explain(explain::Args),
    /// Run the tests that a policy file holds
    Test(test::Args),
    /// List the policy files that are shipped, or print one
    Presets(presets::Args),
    /// Print the JSON Schema of policy files, for editors
    Schema,
    /// Tell what a repository will need and the policy lacks, before a machine boots
    Preflight(preflight::Args),
    /// Put a policy file in force in the gateway, for every run that it binds
    Publish(rollout::PublishArgs),
    /// List the versions of the policies that stand in the gateway, newest first
    Versions(rollout::VersionsArgs),
    /// Put an older version in force again
    Rollback(rollout::RollbackArgs),
    /// End a policy that stands in the gateway
    Withdraw(rollout::WithdrawArgs),
    /// Tell which policies stand in the gateway, and whether a file of theirs is broken
    Status,
    /// Tell what a policy would have made of recorded traffic: what it would newly block, ask for or allow
    Replay(replay::Args),
    /// Propose the policy that would have allowed what a run did
    Learn(learn::Args),
    /// Tell what nobody used of a policy
    Shrink(shrink::Args),
}

/// Where the supervisor is; asked for by those commands alone that need it.
type State<'a> = &'a dyn Fn() -> Result<StateDir, Failure>;

/// Runs the command: 0 good, 1 failed tests, 2 a request that cannot be read, 3 an invalid policy, 4 gaps that are sure,
/// policies that differ, or recorded traffic that would newly be blocked or asked for.
pub fn run(args: Args, state: State<'_>) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    execute(args, state, &mut out).map(ExitCode::from)
}

fn execute(args: Args, state: State<'_>, out: &mut dyn Write) -> Result<u8, Failure> {
    match args.command {
        Command::Publish(args) => rollout::publish(&args, state, out),
        Command::Versions(args) => rollout::versions(&args, state, out),
        Command::Rollback(args) => rollout::roll_back(&args, state, out),
        Command::Withdraw(args) => rollout::withdraw(&args, state, out),
        Command::Status => rollout::status(state, out),
        Command::Replay(args) => replay::run(&args, &state()?, out),
        Command::Learn(args) => learn::run(&args, &state()?, out),
        Command::Shrink(args) => shrink::run(&args, &state()?, out),
        Command::Check(args) => check::run(&args, out),
        Command::Diff(args) => diff::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Test(args) => test::run(&args, out),
        Command::Presets(args) => presets::run(&args, out),
        Command::Schema => schema::run(out),
        Command::Preflight(args) => preflight::run(&args, out),
    }
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

/// The same with the lines of the files.
fn broken(problems: &[Problem], texts: &[PolicyText], out: &mut dyn Write) -> Result<u8, Failure> {
    show(problems, texts, out)?;
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

/// Problems of texts that are not at hand.
fn report(problems: &[Problem], out: &mut dyn Write) -> Result<(), Failure> {
    problems
        .iter()
        .try_for_each(|problem| line(out, &problem.to_string()))
}

/// Each problem with its line.
fn show(problems: &[Problem], texts: &[PolicyText], out: &mut dyn Write) -> Result<(), Failure> {
    problems
        .iter()
        .try_for_each(|problem| line(out, &problem.render(texts)))
}

fn print_json<T: serde::Serialize>(value: &T, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("the answer cannot be written: {error}")))?;
    line(out, &text)
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
