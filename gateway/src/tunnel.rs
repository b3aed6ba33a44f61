//! Opaque streams, where a rule says `protocol: tcp`: counted, recorded, ended with their session.
use crate::Shared;
use crate::control::types::Verdict;
use crate::farewell;
use crate::intake::Intake;
use crate::ledger::{Ledger, Traffic};
use crate::session::Session;
use crate::session::quota::Pass;
use sallyport_policy::Permit;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How often an open stream's grant is looked at.
const GRANT_CHECK: Duration = Duration::from_secs(1);

/// Carries bytes both ways until one side ends, the session ends, the gateway drains, a bound is met, or nothing moves for long.
pub async fn run(shared: &Shared, mut intake: Intake, permit: &Permit, mut ledger: Ledger) {
    let pass = match intake.session.begin(permit, None) {
        Ok(pass) => pass,
        Err(exceeded) => {
            ledger.exceeded(&exceeded);
            let limit = shared.limits.first_bytes;
            farewell::tell(&mut intake.stream, &exceeded.sentence, ledger.id(), limit).await;
            return ledger.close("refused").await;
        }
    };
    let dialled = match shared.upstream.dial(&intake.session, permit).await {
        Ok(dialled) => dialled,
        Err(fault) => {
            let verdict = match fault {
                crate::upstream::UpstreamFault::Address(_) => Verdict::Denied,
                _ => Verdict::UpstreamFailed,
            };
            ledger.verdict(verdict, fault.to_string());
            return ledger.close("refused").await;
        }
    };
    for note in &dialled.notes {
        ledger.remark(note);
    }
    if let Err(error) = ledger.write_open().await {
        tracing::error!(%error, "a tunnel was not opened");
        return ledger.close("held back: the audit log cannot be written").await;
    }
    let traffic = ledger.traffic();
    let mut upstream = Counted {
        stream: dialled.stream,
        traffic: traffic.clone(),
        pass,
    };
    let ending = tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut intake.stream, &mut upstream) => match copied {
            Ok(_) => "complete".to_owned(),
            Err(error) => format!("incomplete: {error}"),
        },
        () = intake.door.ended() => "the session ended".to_owned(),
        () = shared.draining.cancelled() => "the gateway stopped".to_owned(),
        () = grant_ends(&intake.session, permit) => "the grant ended".to_owned(),
        () = stands_still(&traffic, shared.limits.tunnel_idle) => "idle".to_owned(),
    };
    // Its place is free before anybody can read that it has ended.
    drop(upstream);
    ledger.close(&ending).await;
}

/// Ends when one of the grants that the stream rests on has ended or was taken back; never where it rests on rules alone.
async fn grant_ends(session: &Session, permit: &Permit) {
    if permit.grants().is_empty() {
        return std::future::pending().await;
    }
    while permit
        .grants()
        .iter()
        .all(|grant| session.grant_expiry(grant).is_some())
    {
        tokio::time::sleep(GRANT_CHECK).await;
    }
}

/// Ends when no byte moved for a whole `limit`.
async fn stands_still(traffic: &Traffic, limit: Duration) {
    let total = || traffic.bytes_in.load(Ordering::Relaxed) + traffic.bytes_out.load(Ordering::Relaxed);
    let mut before = total();
    loop {
        tokio::time::sleep(limit).await;
        let now = total();
        if now == before {
            return;
        }
        before = now;
    }
}

/// The upstream's side of a stream, counted, and cut where a rule's bound is met.
struct Counted {
    stream: TcpStream,
    traffic: Arc<Traffic>,
    pass: Pass,
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let count = buf.filled().len() - before;
        if let Err(exceeded) = self.pass.receive(count) {
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::other(exceeded)));
        }
        add(&self.traffic.bytes_in, count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // Counted before it is sent, so that two streams cannot both send the last bytes.
        self.pass.take(buf.len()).map_err(io::Error::other)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        let count = match &written {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        self.pass.give_back(buf.len() - count);
        add(&self.traffic.bytes_out, count);
        written
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
