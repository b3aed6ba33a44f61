//! `sallyport policy publish, versions, rollback, withdraw, status`: policies that stand in the gateway, through the supervisor.
use super::{State, line, report};
use crate::cli::client::Supervisor;
use crate::cli::{Failure, INVALID_POLICY, plain};
use crate::web::api::{Change, Texts};
use sallyport_gateway::control::types::{PolicyKey, PolicyVersion, StandingPolicies};
use sallyport_policy::{Layer, LayerTexts, Policy, PolicyText, Problem};
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;

/// Characters of a hash that are shown.
const HASH: usize = 12;

/// Which policy.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Whose policy it is
    #[arg(long, value_parser = layer)]
    layer: Layer,
    /// Team, or OWNER/NAME of the repository; the organisation's has none
    #[arg(long, default_value = "")]
    name: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct PublishArgs {
    /// Policy file; what it includes is published with it
    file: PathBuf,
    #[command(flatten)]
    which: Which,
    /// What is to be said about this version
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct VersionsArgs {
    /// Only this layer; then `--name` says which
    #[arg(long, value_parser = layer)]
    layer: Option<Layer>,
    /// Team, or OWNER/NAME of the repository
    #[arg(long, default_value = "", requires = "layer")]
    name: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    which: Which,
    /// Number of the version [default: the one before the one in force]
    #[arg(long)]
    to: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct WithdrawArgs {
    #[command(flatten)]
    which: Which,
}

/// A layer that can stand in the gateway: what comes with a run does not.
fn layer(text: &str) -> Result<Layer, String> {
    match Layer::parse(text) {
        Some(layer) if layer != Layer::Run => Ok(layer),
        _ => Err("one of organisation, team, repository is wanted".to_owned()),
    }
}

impl Which {
    fn key(&self) -> Result<PolicyKey, Failure> {
        key(self.layer, &self.name)
    }
}

fn key(layer: Layer, name: &str) -> Result<PolicyKey, Failure> {
    let usage = |why| Failure::with_code(super::USAGE, format!("`--name {}`: {why}", name.escape_debug()));
    PolicyKey::new(layer, name).map_err(usage)
}

/// Checks here, so that problems carry the file's own name, then has the gateway check it with every run and take it.
pub(super) fn publish(args: &PublishArgs, state: State<'_>, out: &mut dyn Write) -> Result<u8, Failure> {
    let key = args.which.key()?;
    let texts = super::files::load(&args.file).map_err(|fault| Failure::new(fault.to_string()))?;
    let supervisor = Supervisor::of(&state()?)?;
    let version = block_on(async {
        if let Err(problems) = check(&supervisor, &key, &texts).await? {
            return Ok(Err(problems));
        }
        let body = Texts {
            texts,
            note: args.note.clone(),
        };
        supervisor.publish_policy(&key, &body).await.map(Ok)
    })?;
    match version {
        Ok(version) => {
            line(out, &in_force(&key, &version))?;
            Ok(0)
        }
        Err(problems) => {
            report(&problems, out)?;
            line(out, &format!("{key}: nothing was published"))?;
            Ok(INVALID_POLICY)
        }
    }
}

/// Below what stands above it.
async fn check(
    supervisor: &Supervisor,
    key: &PolicyKey,
    texts: &[PolicyText],
) -> Result<Result<(), Vec<Problem>>, Failure> {
    let mut layers = Vec::new();
    if key.layer() != Layer::Organisation {
        let all = supervisor.policies().await?.policies;
        let above = all.into_iter().find(|one| one.key.layer() == Layer::Organisation);
        if let Some((key, version)) = above.and_then(|one| Some((one.key, one.version?))) {
            let edition = supervisor.policy_version(&key, version.number).await?;
            layers.push(LayerTexts {
                layer: Layer::Organisation,
                texts: edition.texts,
            });
        }
    }
    // A repository's policy may rest on a team's, which only the gateway knows for each run.
    if key.layer() == Layer::Repository {
        return Ok(Ok(()));
    }
    layers.push(LayerTexts {
        layer: key.layer(),
        texts: texts.to_vec(),
    });
    Ok(Policy::compile_layers(&layers).map(drop))
}

pub(super) fn status(state: State<'_>, out: &mut dyn Write) -> Result<u8, Failure> {
    let supervisor = Supervisor::of(&state()?)?;
    let all = block_on(supervisor.policies())?;
    if all.policies.is_empty() {
        line(
            out,
            "no policy stands in the gateway: what comes with each run decides alone",
        )?;
    }
    for one in &all.policies {
        let standing = match &one.version {
            Some(version) => told(version),
            None => "not in force".to_owned(),
        };
        line(out, &format!("{}: {standing}", one.key))?;
        if !one.broken.is_empty() {
            line(out, "  BROKEN: the file on disk cannot be used")?;
            report(&one.broken, out)?;
        } else if one.differs {
            line(
                out,
                "  the file on disk is another one, and is not taken until it changes",
            )?;
        }
    }
    rest(&all, out)?;
    let bad = all.policies.iter().any(|one| !one.broken.is_empty()) || !all.closed.is_empty();
    Ok(u8::from(bad))
}

fn rest(all: &StandingPolicies, out: &mut dyn Write) -> Result<(), Failure> {
    for run in &all.closed {
        let text = format!(
            "nothing passes for run {}: its policy cannot be used",
            plain::line(run)
        );
        line(out, &text)?;
    }
    for name in &all.strays {
        line(out, &format!("no policy uses the file `{}`", plain::line(name)))?;
    }
    Ok(())
}

pub(super) fn versions(args: &VersionsArgs, state: State<'_>, out: &mut dyn Write) -> Result<u8, Failure> {
    let supervisor = Supervisor::of(&state()?)?;
    let keys = match args.layer {
        Some(layer) => vec![key(layer, &args.name)?],
        None => {
            let all = block_on(supervisor.policies())?;
            all.policies.into_iter().map(|one| one.key).collect()
        }
    };
    for key in keys {
        line(out, &key.to_string())?;
        for version in block_on(supervisor.policy_versions(&key))? {
            line(out, &format!("  {}", told(&version)))?;
        }
    }
    Ok(0)
}

pub(super) fn roll_back(args: &RollbackArgs, state: State<'_>, out: &mut dyn Write) -> Result<u8, Failure> {
    let key = args.which.key()?;
    let supervisor = Supervisor::of(&state()?)?;
    let version = block_on(async {
        let to = match args.to {
            Some(to) => to,
            None => before(&supervisor.policy_versions(&key).await?)
                .ok_or_else(|| Failure::new(format!("`{key}` has no version before the one in force")))?,
        };
        supervisor.change_policy(&key, &Change::Rollback { to }).await
    })?;
    line(out, &in_force(&key, &version))?;
    Ok(0)
}

/// The newest version that has other texts than the one in force; versions come newest first.
fn before(versions: &[PolicyVersion]) -> Option<u64> {
    let (now, earlier) = versions.split_first()?;
    let other = |version: &&PolicyVersion| !version.withdrawn && version.hash != now.hash;
    earlier.iter().find(other).map(|version| version.number)
}

pub(super) fn withdraw(args: &WithdrawArgs, state: State<'_>, out: &mut dyn Write) -> Result<u8, Failure> {
    let key = args.which.key()?;
    let supervisor = Supervisor::of(&state()?)?;
    let version = block_on(supervisor.change_policy(&key, &Change::Withdraw {}))?;
    line(
        out,
        &format!(
            "{key}: version {} ends it; it binds no run any more",
            version.number
        ),
    )?;
    Ok(0)
}

fn in_force(key: &PolicyKey, version: &PolicyVersion) -> String {
    format!("{key}: in force for every run now: {}", told(version))
}

/// `version 3 5f70bf18a086 by ada, 2026-11-30 12:00 UTC: note`.
fn told(version: &PolicyVersion) -> String {
    let hash: String = version.hash.chars().take(HASH).collect();
    let what = if version.withdrawn { "withdrawn" } else { &hash };
    let at = version.at.strftime("%Y-%m-%d %H:%M UTC");
    let mut text = format!(
        "version {} {what} by {}, {at}",
        version.number,
        plain::line(&version.author)
    );
    if !version.note.is_empty() {
        text.push_str(&format!(": {}", plain::line(&version.note)));
    }
    text
}

/// These commands alone need a runtime.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64, hash: &str, withdrawn: bool) -> PolicyVersion {
        PolicyVersion {
            number,
            hash: hash.to_owned(),
            author: "ada".to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
            note: "a\nb".to_owned(),
            withdrawn,
        }
    }

    #[test]
    fn a_rollback_goes_to_the_newest_version_that_says_something_else() {
        let versions = [
            version(4, "b", false),
            version(3, "", true),
            version(2, "b", false),
            version(1, "a", false),
        ];
        assert_eq!(before(&versions), Some(1));
        assert_eq!(
            before(&versions[1..]),
            Some(2),
            "after a withdrawal, what was withdrawn"
        );
        assert_eq!(before(&versions[3..]), None);
        assert_eq!(before(&[]), None);
    }

    #[test]
    fn a_version_is_one_line() {
        assert_eq!(
            told(&version(1, "0123456789abcdef", false)),
            "version 1 0123456789ab by ada, 1970-01-01 00:00 UTC: a\\nb"
        );
    }

    #[test]
    fn a_name_that_fits_no_layer_is_a_question_of_usage() {
        for (layer, name) in [
            (Layer::Organisation, "x"),
            (Layer::Team, ""),
            (Layer::Repository, "site"),
        ] {
            assert_eq!(key(layer, name).unwrap_err().code(), 2);
        }
    }
}
