//! What was measured, as JSON and as the table of ratios.
use crate::scenario::{Figure, Load, Scenario};
use serde::{Deserialize, Serialize};
use std::io::Write;

mod rows;

/// Everything of one run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Where it ran.
    pub(crate) machine: Machine,
    /// With how much load.
    pub(crate) load: Load,
    /// Every single figure.
    pub(crate) samples: Vec<Sample>,
}

/// Where something was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    processor: String,
    kernel: String,
    /// Load average of the last minute, before and after: what else ran.
    load_before: String,
    /// As above.
    pub(crate) load_after: String,
}

/// One figure, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Name of the target.
    pub(crate) target: String,
    /// What was measured.
    pub(crate) scenario: Scenario,
    /// In which round, from 0.
    pub(crate) round: u32,
    /// The figure.
    pub(crate) figure: Option<Figure>,
    /// Why there is none.
    pub(crate) fault: Option<String>,
}

impl Machine {
    /// This machine.
    pub(crate) fn look() -> anyhow::Result<Self> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        Ok(Self {
            processor: model
                .unwrap_or("unknown")
                .trim_matches([':', ' ', '\t'])
                .to_owned(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            load_before: Self::load()?,
            load_after: String::new(),
        })
    }

    /// Load average of the last minute.
    pub(crate) fn load() -> anyhow::Result<String> {
        let text = std::fs::read_to_string("/proc/loadavg")?;
        Ok(text.split(' ').next().unwrap_or_default().to_owned())
    }
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(machine: Machine, load: Load) -> Self {
        Self {
            machine,
            load,
            samples: Vec::new(),
        }
    }

    /// Whether a target failed in a scenario already; then it is not tried in further rounds.
    pub(crate) fn fails(&self, target: &str, scenario: Scenario) -> bool {
        let same = |sample: &&Sample| sample.target == target && sample.scenario == scenario;
        self.samples
            .iter()
            .filter(same)
            .any(|sample| sample.fault.is_some())
    }

    /// Prints the table of ratios on standard output.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let targets = self.targets();
        writeln!(
            out,
            "{}, kernel {}, load average {} before and {} after\n",
            self.machine.processor, self.machine.kernel, self.machine.load_before, self.machine.load_after
        )?;
        let mut head: Vec<&str> = vec!["figure"];
        head.extend(&targets);
        head.extend(["reach", ""]);
        writeln!(out, "| {} |\n|{}", head.join(" | "), " --- |".repeat(head.len()))?;
        for row in rows::ROWS {
            let mut cells = vec![row.name.to_owned()];
            cells.extend(targets.iter().map(|target| match row.value(self, target) {
                Some(value) => row.shown(value),
                None => "–".to_owned(),
            }));
            cells.push(row.reach_shown());
            cells.push(
                row.value(self, "ours")
                    .map_or("–", |value| row.judged(value))
                    .to_owned(),
            );
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        for sample in self.samples.iter().filter(|sample| sample.fault.is_some()) {
            let fault = sample.fault.as_deref().unwrap_or_default();
            let line = fault.lines().next().unwrap_or_default();
            writeln!(out, "\n`{}` has no {:?}: {line}", sample.target, sample.scenario)?;
        }
        Ok(())
    }

    /// Targets in the order in which they were measured.
    fn targets(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !found.contains(&sample.target.as_str()) {
                found.push(&sample.target);
            }
        }
        found
    }

    /// Median over the rounds of one part of a figure.
    fn median(&self, target: &str, scenario: Scenario, part: fn(&Figure) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self
            .samples
            .iter()
            .filter(|sample| sample.target == target && sample.scenario == scenario)
            .filter_map(|sample| part(sample.figure.as_ref()?))
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}
