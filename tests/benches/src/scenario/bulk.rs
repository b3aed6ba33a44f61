//! Large bodies both ways.
use super::{Figure, Load, together, warm};
use crate::client::Client;
use crate::origin::{BULK, LARGE};
use crate::target::{Target, Version};
use bytes::Bytes;
use http::Method;
use std::sync::Arc;
use std::time::Instant;

const MEGABYTE: f64 = 1_000_000.0;

/// MB/s of downloads.
pub(super) async fn down(target: &Arc<Target>, load: &Load) -> anyhow::Result<Figure> {
    move_bodies(target, load, Method::GET, &Bytes::new()).await
}

/// MB/s of uploads.
pub(super) async fn up(target: &Arc<Target>, load: &Load) -> anyhow::Result<Figure> {
    move_bodies(target, load, Method::PUT, &LARGE).await
}

async fn move_bodies(
    target: &Arc<Target>,
    load: &Load,
    method: Method,
    body: &Bytes,
) -> anyhow::Result<Figure> {
    let clients = warm(target, load.bulk, Version::Http1).await?;
    let end = Instant::now() + load.duration();
    let workers = clients
        .into_iter()
        .map(|client| bodies(client, end, method.clone(), body.clone()));
    together(target, workers.collect(), BULK as f64 / MEGABYTE).await
}

async fn bodies(mut client: Client, end: Instant, method: Method, body: Bytes) -> anyhow::Result<u64> {
    let (path, whole) = match method {
        Method::GET => ("/down", BULK as u64),
        _ => ("/up", BULK.to_string().len() as u64),
    };
    let mut count = 0;
    while Instant::now() < end {
        let came = client.exchange(method.clone(), path, body.clone()).await?;
        anyhow::ensure!(came == whole, "{path}: {came} bytes came instead of {whole}");
        count += 1;
    }
    Ok(count)
}
