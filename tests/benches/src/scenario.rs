//! The scenarios: each puts one kind of load on one target for a while and gives one figure.
use crate::client::Client;
use crate::names;
use crate::target::{Target, Version};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod bulk;
mod churn;
mod events;
mod idle;
mod small;

/// What is measured.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// Requests a second on kept connections, HTTP/1.1; and the proxy's processor time for each
    KeepAlive,
    /// The same over HTTP/2
    KeepAliveHttp2,
    /// Median time of a request on one connection, microseconds
    Latency,
    /// New connections a second, all to one name
    Connections,
    /// New connections a second, each to a name of its own
    Names,
    /// MB/s of 16 MiB downloads
    Downloads,
    /// MB/s of 16 MiB uploads
    Uploads,
    /// Median time that an event is on its way, microseconds
    Events,
    /// Resident memory of the proxy for each idle connection, KiB
    Idle,
}

/// How much load there is.
#[derive(Debug, Clone, Serialize, Deserialize, clap::Args)]
pub(crate) struct Load {
    /// Seconds for which a scenario runs against a target in one round
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Connections with small requests
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Clients that open connections one after the other
    #[arg(long, default_value_t = 8)]
    pub(crate) openers: usize,
    /// Connections with large bodies
    #[arg(long, default_value_t = 4)]
    pub(crate) bulk: usize,
    /// Idle connections
    #[arg(long, default_value_t = 5000)]
    pub(crate) idle: usize,
}

/// What one scenario against one target gave in one round.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The figure, in the scenario's unit.
    pub(crate) value: f64,
    /// Exchanges, connections or events that it rests on.
    pub(crate) count: u64,
    /// Processor time of the proxy for each of them, microseconds; none without a proxy.
    pub(crate) cpu_us: Option<f64>,
}

impl Scenario {
    /// Runs it once.
    pub(crate) async fn run(self, target: &Arc<Target>, load: &Load, round: u32) -> anyhow::Result<Figure> {
        match self {
            Self::KeepAlive => small::throughput(target, load, Version::Http1).await,
            Self::KeepAliveHttp2 => small::throughput(target, load, Version::Http2).await,
            Self::Latency => small::latency(target, load).await,
            Self::Connections => churn::same_name(target, load).await,
            Self::Names => churn::distinct_names(target, load, round).await,
            Self::Downloads => bulk::down(target, load).await,
            Self::Uploads => bulk::up(target, load).await,
            Self::Events => events::delay(target, load).await,
            Self::Idle => idle::memory(target, load).await,
        }
    }
}

impl Load {
    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Processor time of a target's proxy, where there is one.
fn cpu_us(target: &Target) -> anyhow::Result<Option<u64>> {
    target
        .process
        .as_ref()
        .map(|process| process.cpu_us())
        .transpose()
}

/// Runs `workers` tasks until the time is over; each adds up what it did. The figure is the sum for each second.
async fn together<F>(target: &Target, workers: Vec<F>, per_count: f64) -> anyhow::Result<Figure>
where
    F: Future<Output = anyhow::Result<u64>> + Send + 'static,
{
    let (started, cpu) = (Instant::now(), cpu_us(target)?);
    let running: Vec<_> = workers.into_iter().map(tokio::spawn).collect();
    let mut count = 0;
    for worker in running {
        count += worker.await??;
    }
    let seconds = started.elapsed().as_secs_f64();
    let spent = cpu_us(target)?.zip(cpu).map(|(after, before)| after - before);
    Ok(Figure {
        value: count as f64 * per_count / seconds,
        count,
        cpu_us: spent.map(|spent| spent as f64 / count.max(1) as f64),
    })
}

/// Connections on which one request has been answered already.
async fn warm(target: &Target, count: usize, version: Version) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        let mut client = Client::open(target, names::ONE, number, version).await?;
        client.small().await?;
        clients.push(client);
    }
    Ok(clients)
}

/// The middle one.
fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
