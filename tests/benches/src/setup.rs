//! One measurement: everything started, every scenario against every target in turn, for several rounds.
use crate::process::{self, LOAD_CORE, PROXY_CORE, Process};
use crate::report::{Machine, Report, Sample};
use crate::scenario::{Load, Scenario};
use crate::target::Target;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

mod ours;
mod peers;

/// What is measured, and with what.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// The program `sallyport-gateway`
    #[arg(long)]
    gateway: PathBuf,
    /// The program `squid`, built with OpenSSL
    #[arg(long)]
    squid: Option<PathBuf>,
    /// The program `mitmdump`
    #[arg(long)]
    mitmdump: Option<PathBuf>,
    /// The program `hudsucker-peer`
    #[arg(long)]
    hudsucker: Option<PathBuf>,
    /// Only these targets, besides `direct` and `tunnel`
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these scenarios
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    load: Load,
    /// Where every number is written as JSON
    #[arg(long, default_value = "benches.json")]
    json: PathBuf,
}

/// What every target is started with.
struct Stage {
    folder: tempfile::TempDir,
    origin_ca_pem: String,
    origin_ca: PathBuf,
    /// Idle connections that will come, for which users must be there.
    idle: usize,
}

/// All that takes part in the rounds.
const IN_ROUNDS: [Scenario; 8] = [
    Scenario::KeepAlive,
    Scenario::KeepAliveHttp2,
    Scenario::Latency,
    Scenario::Connections,
    Scenario::Names,
    Scenario::Downloads,
    Scenario::Uploads,
    Scenario::Events,
];

/// Measures, writes the numbers down and prints the table.
pub(crate) async fn measure(plan: Plan) -> anyhow::Result<()> {
    process::stay_on(LOAD_CORE)?;
    let files = process::many_files()?;
    anyhow::ensure!(
        files > 2 * plan.load.idle as u64 + 200,
        "{} idle connections need more open files than the {files} that this system allows; give fewer with `--idle`",
        plan.load.idle
    );
    let folder = tempfile::Builder::new().prefix("sp-bench-").tempdir()?;
    let origin = start_origin(&folder).await?;
    let origin_ca = folder.path().join("origin-ca.pem");
    let stage = Stage {
        origin_ca_pem: std::fs::read_to_string(&origin_ca)?,
        origin_ca,
        idle: plan.load.idle,
        folder,
    };
    let mut report = Report::new(Machine::look()?, plan.load.clone());
    rounds(&plan, &stage, &mut report).await?;
    if plan.wants(Scenario::Idle) {
        idle(&plan, &stage, &mut report).await?;
    }
    drop(origin);
    report.machine.load_after = Machine::load()?;
    std::fs::write(&plan.json, serde_json::to_vec_pretty(&report)?)?;
    report.print()
}

/// Every scenario against each target in turn, so that what disturbs the machine disturbs all of them.
async fn rounds(plan: &Plan, stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let mut targets = Vec::new();
    for name in plan.targets() {
        targets.push(Arc::new(start(plan, stage, name).await?));
    }
    for round in 0..plan.rounds {
        for scenario in IN_ROUNDS.into_iter().filter(|scenario| plan.wants(*scenario)) {
            for target in &targets {
                let gone = report.fails(target.name, scenario);
                if !gone {
                    one(plan, target, scenario, round, report).await?;
                }
            }
        }
    }
    Ok(())
}

/// Each target alone and fresh, since memory that was used before would hide what connections need.
async fn idle(plan: &Plan, stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    for name in plan
        .targets()
        .into_iter()
        .filter(|name| *name != "direct" && *name != "ours-redirected")
    {
        let target = Arc::new(start(plan, stage, name).await?);
        one(plan, &target, Scenario::Idle, 0, report).await?;
    }
    Ok(())
}

async fn one(
    plan: &Plan,
    target: &Arc<Target>,
    scenario: Scenario,
    round: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ran = scenario.run(target, &plan.load, round).await;
    let (figure, fault) = match ran {
        Ok(figure) => (Some(figure), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let told = figure.map_or_else(
        || fault.clone().unwrap_or_default(),
        |it| format!("{:.1}", it.value),
    );
    writeln!(std::io::stderr(), "{round} {scenario:?} {}: {told}", target.name)?;
    report.samples.push(Sample {
        target: target.name.to_owned(),
        scenario,
        round,
        figure,
        fault,
    });
    Ok(())
}

async fn start(plan: &Plan, stage: &Stage, name: &str) -> anyhow::Result<Target> {
    match name {
        "direct" => peers::direct(stage),
        "tunnel" => peers::tunnel(stage).await,
        "ours" => ours::by_connect(stage, &plan.gateway).await,
        "ours-redirected" => ours::redirected(stage, &plan.gateway).await,
        "squid" => peers::squid(stage, plan.program(name)?).await,
        "mitmproxy" => peers::mitmproxy(stage, plan.program(name)?).await,
        _ => peers::hudsucker(stage, plan.program(name)?).await,
    }
}

async fn start_origin(folder: &tempfile::TempDir) -> anyhow::Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["origin", "--http1", "127.0.0.1:443", "--http2", "127.0.0.1:8443"])
        .args(["--dns", "127.0.0.1:53", "--folder"])
        .arg(folder.path())
        .stdin(Stdio::null());
    let mut origin = Process::start(&mut command, LOAD_CORE)?;
    origin.listens(([127, 0, 0, 1], 8443).into()).await?;
    debug_assert_ne!(PROXY_CORE, LOAD_CORE);
    Ok(origin)
}

impl Plan {
    fn wants(&self, scenario: Scenario) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }

    /// `direct` and `tunnel` always: everything is told in terms of them.
    fn targets(&self) -> Vec<&'static str> {
        let there = BTreeMap::from([
            ("squid", self.squid.is_some()),
            ("mitmproxy", self.mitmdump.is_some()),
            ("hudsucker", self.hudsucker.is_some()),
        ]);
        let chosen = |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        [
            "direct",
            "tunnel",
            "ours",
            "ours-redirected",
            "hudsucker",
            "squid",
            "mitmproxy",
        ]
        .into_iter()
        .filter(|name| matches!(*name, "direct" | "tunnel") || chosen(name))
        .filter(|name| *there.get(name).unwrap_or(&true))
        .collect()
    }

    fn program(&self, name: &str) -> anyhow::Result<&PathBuf> {
        let program = match name {
            "squid" => &self.squid,
            "mitmproxy" => &self.mitmdump,
            _ => &self.hudsucker,
        };
        program
            .as_ref()
            .ok_or_else(|| anyhow::anyhow!("where `{name}` is was not said; give `--{name} PATH`"))
    }
}
