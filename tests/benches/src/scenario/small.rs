//! Small requests on kept connections: how many in a second, and how long one takes.
use super::{Figure, Load, median, together, warm};
use crate::client::Client;
use crate::target::{Target, Version};
use std::sync::Arc;
use std::time::Instant;

/// Requests a second on all connections together.
pub(super) async fn throughput(
    target: &Arc<Target>,
    load: &Load,
    version: Version,
) -> anyhow::Result<Figure> {
    let clients = warm(target, load.connections, version).await?;
    let end = Instant::now() + load.duration();
    let workers = clients.into_iter().map(|client| requests(client, end));
    together(target, workers.collect(), 1.0).await
}

async fn requests(mut client: Client, end: Instant) -> anyhow::Result<u64> {
    let mut count = 0;
    while Instant::now() < end {
        client.small().await?;
        count += 1;
    }
    Ok(count)
}

/// Median microseconds of a request on one connection.
pub(super) async fn latency(target: &Arc<Target>, load: &Load) -> anyhow::Result<Figure> {
    let mut client = warm(target, 1, Version::Http1).await?.remove(0);
    let end = Instant::now() + load.duration();
    let mut times = Vec::new();
    while Instant::now() < end {
        let begun = Instant::now();
        client.small().await?;
        times.push(u64::try_from(begun.elapsed().as_nanos())?);
    }
    Ok(Figure {
        value: median(&mut times) as f64 / 1000.0,
        count: times.len() as u64,
        cpu_us: None,
    })
}
