//! `sallyport policy test`: runs the tests that a policy file holds, and tells which rules none of them exercises.
use super::layers::Place;
use super::{broken, counted, line, print_json, show};
use crate::cli::{Failure, policy::files};
use sallyport_policy::{PolicyText, Problem, RuleCoverage, TestReport};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy file; tests in `NAME.tests.yaml` beside `NAME.yaml` are run too
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    /// Further files with a list of `tests`
    #[arg(long, value_name = "FILE")]
    tests: Vec<PathBuf>,
    /// Fail where fewer of the policy's own rules are exercised, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_coverage: Option<u8>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Told<'a> {
    file: String,
    total: usize,
    failures: &'a [Problem],
    coverage: &'a [RuleCoverage],
    /// Percent of the policy's own rules.
    covered: u8,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let mut read = args.place.read(&args.file)?;
    let policy = match read.policy {
        Ok(policy) => policy,
        Err(problems) => return broken(&problems, &read.texts, out),
    };
    let beside = beside(args)?;
    let report = policy.run_tests_with(&beside);
    read.texts.extend(beside);
    let report = match report {
        Ok(report) => report,
        Err(problems) => return broken(&problems, &read.texts, out),
    };
    let (own, included): (Vec<_>, Vec<_>) = report.coverage.iter().partition(|rule| rule.own);
    let covered = percent(&own);
    if args.json {
        let told = Told {
            file: args.file.display().to_string(),
            total: report.total,
            failures: &report.failures,
            coverage: &report.coverage,
            covered,
        };
        print_json(&told, out)?;
    } else {
        show(&report.failures, &read.texts, out)?;
        line(out, &passed(&args.file, &report))?;
        line(out, &coverage("rule coverage", &own))?;
        if !included.is_empty() {
            line(out, &coverage("coverage of included rules", &included))?;
        }
    }
    let enough = args.min_coverage.is_none_or(|least| covered >= least);
    if !enough && !args.json {
        let least = args.min_coverage.unwrap_or_default();
        line(
            out,
            &format!("rule coverage is {covered} %, and {least} % are asked for"),
        )?;
    }
    Ok(if report.failures.is_empty() && enough {
        0
    } else {
        1
    })
}

/// The file beside the policy, if it is there, and those that were named.
fn beside(args: &Args) -> Result<Vec<PolicyText>, Failure> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let name = args.file.with_extension("tests.yaml");
    if name.exists() && name != args.file {
        paths.push(name);
    }
    for path in &args.tests {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    let text = |path: &PathBuf| files::text(path).map_err(|fault| Failure::new(fault.to_string()));
    paths.iter().map(text).collect()
}

fn passed(file: &Path, report: &TestReport) -> String {
    let passed = report.total - report.failures.len();
    format!(
        "{}: {passed} of {} passed",
        file.display(),
        counted(report.total, "test")
    )
}

/// Rounded down, so that 100 means all; no rules are all of them.
fn percent(rules: &[&RuleCoverage]) -> u8 {
    let exercised = rules.iter().filter(|rule| rule.exercised()).count();
    let percent = (exercised * 100).checked_div(rules.len()).unwrap_or(100);
    u8::try_from(percent).unwrap_or(100)
}

fn coverage(what: &str, rules: &[&RuleCoverage]) -> String {
    let never: Vec<String> = rules
        .iter()
        .filter(|rule| !rule.exercised())
        .map(|rule| format!("{} ({}:{}:{})", rule.rule, rule.file, rule.line, rule.column))
        .collect();
    let exercised = rules.len() - never.len();
    let never = match never.is_empty() {
        true => String::new(),
        false => format!("; never exercised: {}", never.join(", ")),
    };
    format!("{what}: {exercised} of {}{never}", rules.len())
}
