//! `sallyport policy explain`: how a request would be decided, and why.
use super::layers::{Place, Read};
use super::{USAGE, broken, line, print_json, read_who};
use crate::cli::Failure;
use sallyport_policy::{Overlay, Request};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy file
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    /// `GET https://host/path`, `connect host:port` or `opaque host:port`
    #[arg(required = true, num_args = 1.., value_name = "REQUEST")]
    request: Vec<String>,
    /// A fact about the run, such as `team=web` or `labels.tier=gold`
    #[arg(long, value_name = "FACT=VALUE")]
    who: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<u8, Failure> {
    let request = Request::parse(&args.request.join(" "))
        .map_err(|fault| Failure::with_code(USAGE, fault.to_string()))?;
    let who = read_who(&args.who)?;
    let Read { texts, policy } = args.place.read(&args.file)?;
    let policy = match policy {
        Ok(policy) => policy,
        Err(problems) => return broken(&problems, &texts, out),
    };
    let explanation = policy.explain(&request, &who, &Overlay::default(), jiff::Timestamp::now());
    if args.json {
        print_json(&explanation, out)?;
    } else {
        line(out, &explanation.to_string())?;
    }
    Ok(0)
}
