//! The rows of the table: each a figure put in relation, and what the gateway is to reach.
use super::Report;
use crate::scenario::{Figure, Scenario};

/// One row.
pub(super) struct Row {
    pub(super) name: &'static str,
    scenario: Scenario,
    part: fn(&Figure) -> Option<f64>,
    relation: Relation,
    reach: Reach,
}

enum Relation {
    /// Divided by this target's figure.
    To(&'static str),
    /// Less this target's figure.
    Over(&'static str),
    /// As it is.
    Itself,
}

#[derive(Clone, Copy)]
enum Reach {
    AtLeast(f64),
    AtMost(f64),
    Shown,
}

fn value(figure: &Figure) -> Option<f64> {
    Some(figure.value)
}

fn cpu(figure: &Figure) -> Option<f64> {
    figure.cpu_us
}

const fn row(
    name: &'static str,
    scenario: Scenario,
    part: fn(&Figure) -> Option<f64>,
    relation: Relation,
    reach: Reach,
) -> Row {
    Row {
        name,
        scenario,
        part,
        relation,
        reach,
    }
}

/// All rows, in their order.
pub(super) const ROWS: &[Row] = &[
    row(
        "keep-alive, requests/s relative to direct",
        Scenario::KeepAlive,
        value,
        Relation::To("direct"),
        Reach::AtLeast(0.88),
    ),
    row(
        "proxy CPU per request, relative to the tunnel",
        Scenario::KeepAlive,
        cpu,
        Relation::To("tunnel"),
        Reach::AtMost(1.5),
    ),
    row(
        "keep-alive over HTTP/2, requests/s relative to direct",
        Scenario::KeepAliveHttp2,
        value,
        Relation::To("direct"),
        Reach::Shown,
    ),
    row(
        "p50 latency at one connection, relative to the tunnel",
        Scenario::Latency,
        value,
        Relation::To("tunnel"),
        Reach::AtMost(1.2),
    ),
    row(
        "new connections/s, same name, relative to direct",
        Scenario::Connections,
        value,
        Relation::To("direct"),
        Reach::AtLeast(1.3),
    ),
    row(
        "new connections/s, new name each, relative to direct",
        Scenario::Names,
        value,
        Relation::To("direct"),
        Reach::AtLeast(0.75),
    ),
    row(
        "16 MiB downloads, MB/s relative to direct",
        Scenario::Downloads,
        value,
        Relation::To("direct"),
        Reach::AtLeast(0.70),
    ),
    row(
        "16 MiB uploads, MB/s relative to direct",
        Scenario::Uploads,
        value,
        Relation::To("direct"),
        Reach::AtLeast(0.70),
    ),
    row(
        "events: p50 delay over the tunnel's, us",
        Scenario::Events,
        value,
        Relation::Over("tunnel"),
        Reach::AtMost(50.0),
    ),
    row(
        "resident memory per idle connection, KiB",
        Scenario::Idle,
        value,
        Relation::Itself,
        Reach::AtMost(45.0),
    ),
    row(
        "requests/s at direct and each",
        Scenario::KeepAlive,
        value,
        Relation::Itself,
        Reach::Shown,
    ),
    row(
        "proxy CPU per request, us",
        Scenario::KeepAlive,
        cpu,
        Relation::Itself,
        Reach::Shown,
    ),
];

impl Row {
    /// The cell of a target; none where it, or what it relates to, was not measured.
    pub(super) fn value(&self, report: &Report, target: &str) -> Option<f64> {
        let own = report.median(target, self.scenario, self.part)?;
        match self.relation {
            Relation::Itself => Some(own),
            Relation::To(other) => Some(own / report.median(other, self.scenario, self.part)?),
            Relation::Over(other) => Some(own - report.median(other, self.scenario, self.part)?),
        }
    }

    /// A cell's text.
    pub(super) fn shown(&self, value: f64) -> String {
        match self.relation {
            Relation::To(_) => format!("{value:.2}"),
            Relation::Over(_) | Relation::Itself => format!("{value:.0}"),
        }
    }

    /// What is to be reached, as text.
    pub(super) fn reach_shown(&self) -> String {
        match self.reach {
            Reach::AtLeast(bound) => format!("at least {bound}"),
            Reach::AtMost(bound) => format!("at most {bound}"),
            Reach::Shown => String::new(),
        }
    }

    /// Whether a value reaches it.
    pub(super) fn judged(&self, value: f64) -> &'static str {
        let reached = match self.reach {
            Reach::AtLeast(bound) => value >= bound,
            Reach::AtMost(bound) => value <= bound,
            Reach::Shown => return "",
        };
        if reached { "reached" } else { "missed" }
    }
}
