//! `sallyport policy preflight`: what a repository will need, held against a policy before a machine boots.
#[cfg(test)]
mod tests;
mod walk;

use super::{broken, counted, files, line, read_who};
use crate::cli::Failure;
use crate::registries::Registries;
use sallyport_policy::preflight::{Against, Report, compare, needs};
use sallyport_policy::{Policy, PolicyText, included_names};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Exit code where something is certainly missing.
const GAPS: u8 = 4;
/// The text that is made of this host's own package managers.
const REGISTRIES: &str = "preset:registries";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder of the repository
    repository: PathBuf,
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// A fact about the run, such as `team=web` or `labels.tier=gold`
    #[arg(long, value_name = "FACT=VALUE")]
    who: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let who = read_who(&args.who)?;
    let texts = load(&args.policy)?;
    let policy = match Policy::compile(&texts) {
        Ok(policy) => policy,
        Err(problems) => return broken(&problems, &texts, out),
    };
    let walked = walk::walk(&args.repository)?;
    let mut found = needs(&walked.files);
    found.notes.extend(walked.notes);
    let against = Against {
        policy: &policy,
        who: &who,
        now: jiff::Timestamp::now(),
        presets: &texts,
    };
    let report = compare(&found, against);
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(format!("the report cannot be written: {error}")))?;
        line(out, &text)?;
    } else {
        line(out, &heading(&args.repository, walked.files.len(), &report))?;
        line(out, &report.to_string())?;
    }
    let missing = report.sure_gaps().next().is_some();
    Ok(if missing { GAPS } else { 0 })
}

fn heading(repository: &Path, files: usize, report: &Report) -> String {
    format!(
        "{}: {}, {}, {}, {}",
        repository.display(),
        counted(files, "file"),
        counted(report.findings.len(), "need"),
        counted(report.sure_gaps().count(), "sure gap"),
        counted(report.likely_gaps().count(), "likely gap"),
    )
}

/// The policy with all that it includes; the host's registries are asked for where it names them.
fn load(policy: &Path) -> Result<Vec<PolicyText>, Failure> {
    let mut texts = files::load(policy).map_err(|fault| Failure::new(fault.to_string()))?;
    let wanted = texts
        .iter()
        .flat_map(included_names)
        .any(|name| name == REGISTRIES);
    if wanted && texts.iter().all(|text| text.name != REGISTRIES) {
        texts.push(registries()?);
    }
    Ok(texts)
}

fn registries() -> Result<PolicyText, Failure> {
    let failed = |why: String| Failure::new(format!("the registries of this host cannot be told: {why}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let known = Registries::default();
    let found = runtime
        .block_on(known.get())
        .map_err(|error| failed(error.to_string()))?;
    Ok(found.policy.clone())
}
