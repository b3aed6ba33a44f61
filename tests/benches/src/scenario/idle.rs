//! Idle connections: what each costs the proxy in memory.
use super::{Figure, Load};
use crate::client::Client;
use crate::names;
use crate::target::{Target, Version};
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;

/// Connections opened at the same time.
const AT_ONCE: usize = 16;
/// After the last request, until memory is looked at: what a proxy tidies up by itself is tidied up by then.
const SETTLED: Duration = Duration::from_secs(3);

/// KiB of resident memory for each connection that has had one request and waits. To be asked of a fresh process.
pub(super) async fn memory(target: &Arc<Target>, load: &Load) -> anyhow::Result<Figure> {
    let process = target.process.as_ref().context("nothing stands between")?;
    let mut client = Client::open(target, names::ONE, 0, Version::Http1).await?;
    client.small().await?;
    let before = process.resident_kib()?;
    let openers = (0..AT_ONCE).map(|first| {
        let (target, numbers) = (target.clone(), (first..load.idle).step_by(AT_ONCE));
        tokio::spawn(async move {
            let mut open = Vec::new();
            for number in numbers {
                let mut client = Client::open(&target, names::ONE, number, Version::Http1).await?;
                client.small().await?;
                open.push(client);
            }
            anyhow::Ok(open)
        })
    });
    let mut open = Vec::new();
    for opener in openers.collect::<Vec<_>>() {
        open.extend(opener.await??);
    }
    tokio::time::sleep(SETTLED).await;
    let grown = process.resident_kib()?.saturating_sub(before);
    Ok(Figure {
        value: grown as f64 / open.len() as f64,
        count: open.len() as u64,
        cpu_us: None,
    })
}
