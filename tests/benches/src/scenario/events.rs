//! Server-sent events: how long each is on its way.
use super::{Figure, Load, median, warm};
use crate::clock::now_ns;
use crate::target::{Target, Version};
use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A proxy that holds events back longer than this does not pass them on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Median microseconds from the origin's writing an event to the client's reading it.
pub(super) async fn delay(target: &Arc<Target>, load: &Load) -> anyhow::Result<Figure> {
    let mut client = warm(target, 1, Version::Http1).await?.remove(0);
    let asked = Instant::now();
    let sent = client.send(Method::GET, "/events", Bytes::new());
    let held = || format!("no event came within {PATIENCE:?}");
    let mut body = timeout_at(asked + PATIENCE, sent)
        .await
        .with_context(held)??
        .into_body();
    let (mut times, mut rest) = (Vec::new(), String::new());
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end) {
        let frame = timeout_at(Instant::now() + PATIENCE, body.frame())
            .await
            .with_context(held)?;
        let frame = frame.context("the events ended")??;
        let read = now_ns();
        end.get_or_insert(Instant::now() + load.duration());
        rest.push_str(std::str::from_utf8(
            frame.data_ref().map_or(&[][..], |data| data),
        )?);
        while let Some((event, after)) = rest.split_once("\n\n") {
            let sent: u64 = event.trim_start_matches("data: ").parse()?;
            times.push(read.saturating_sub(sent));
            rest = after.to_owned();
        }
    }
    Ok(Figure {
        value: median(&mut times) as f64 / 1000.0,
        count: times.len() as u64,
        cpu_us: None,
    })
}
