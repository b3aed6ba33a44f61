//! `sallyport policy presets`: the policy files that are shipped.
use super::{USAGE, line};
use crate::cli::Failure;
use std::io::Write;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print this preset's file
    name: Option<String>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    match &args.name {
        Some(name) => show(name.strip_prefix("preset:").unwrap_or(name), out)?,
        None => list(out)?,
    }
    Ok(0)
}

fn show(name: &str, out: &mut dyn Write) -> Result<(), Failure> {
    match sallyport_policy::presets().find(|preset| preset.name == name) {
        Some(preset) => line(out, preset.text.trim_end()),
        None => Err(Failure::with_code(
            USAGE,
            format!(
                "no preset is called `{}`; `sallyport policy presets` lists them",
                name.escape_debug()
            ),
        )),
    }
}

fn list(out: &mut dyn Write) -> Result<(), Failure> {
    let width = sallyport_policy::presets().map(|preset| preset.name.len()).max();
    let width = width.unwrap_or_default();
    for preset in sallyport_policy::presets() {
        line(out, &format!("{:width$}  {}", preset.name, preset.purpose()))?;
    }
    Ok(())
}
