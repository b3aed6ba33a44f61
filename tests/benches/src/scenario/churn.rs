//! New connections: each with a handshake, one small request, and its end.
use super::{Figure, Load, together};
use crate::client::Client;
use crate::names;
use crate::target::{Target, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Connections a second to one name: whatever can be kept from the ones before is kept.
pub(super) async fn same_name(target: &Arc<Target>, load: &Load) -> anyhow::Result<Figure> {
    churn(target, load, |_| names::ONE.to_owned()).await
}

/// Connections a second, each to a name that was never seen before.
pub(super) async fn distinct_names(target: &Arc<Target>, load: &Load, round: u32) -> anyhow::Result<Figure> {
    churn(target, load, move |number| names::distinct(round, number)).await
}

async fn churn(
    target: &Arc<Target>,
    load: &Load,
    name: impl Fn(u64) -> String + Clone + Send + 'static,
) -> anyhow::Result<Figure> {
    let end = Instant::now() + load.duration();
    let next = Arc::new(AtomicU64::new(0));
    let workers = (0..load.openers).map(|_| {
        let (target, next, name) = (target.clone(), next.clone(), name.clone());
        async move {
            let mut count = 0;
            while Instant::now() < end {
                let host = name(next.fetch_add(1, Ordering::Relaxed));
                let mut client = Client::open(&target, &host, 0, Version::Http1).await?;
                client.small().await?;
                count += 1;
            }
            anyhow::Ok(count)
        }
    });
    together(target, workers.collect(), 1.0).await
}
