//! Opaque streams, where a rule says `protocol: tcp`: counted, recorded, ended with their session.
use crate::Shared;
use crate::audit::HELD_BACK;
use crate::farewell;
use crate::intake::Intake;
use crate::lasting::{Hold, over};
use crate::ledger::{Ledger, Traffic};
use crate::session::brake::Brake;
use crate::session::quota::Pass;
use sallyport_policy::Permit;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
            ledger.verdict(fault.verdict(), fault.to_string());
            return ledger.close("refused").await;
        }
    };
    for note in &dialled.notes {
        ledger.remark(note);
    }
    if let Err(error) = ledger.write_open().await {
        tracing::error!(%error, "a tunnel was not opened");
        return ledger.close(HELD_BACK).await;
    }
    let traffic = ledger.traffic();
    let mut upstream = Counted::new(dialled.stream, traffic.clone(), Arc::new(pass));
    let hold = Hold {
        door: &intake.door,
        session: &intake.session,
        permit,
        traffic: &traffic,
    };
    let ending = tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut intake.stream, &mut upstream) => match copied {
            Ok(_) => "complete".to_owned(),
            Err(error) => format!("incomplete: {error}"),
        },
        over = over(shared, hold, shared.limits.tunnel_idle) => over.ending().to_owned(),
    };
    // Its place is free before anybody can read that it has ended.
    drop(upstream);
    ledger.close(&ending).await;
}

/// The upstream's side of a stream, counted, and cut where a rule's bound is met.
pub(crate) struct Counted<S> {
    stream: S,
    traffic: Arc<Traffic>,
    pass: Arc<Pass>,
    /// For what comes, and for what goes.
    brakes: [Brake; 2],
}

impl<S> Counted<S> {
    /// Nothing has passed yet.
    pub(crate) fn new(stream: S, traffic: Arc<Traffic>, pass: Arc<Pass>) -> Self {
        Self {
            stream,
            traffic,
            pass,
            brakes: [Brake::default(), Brake::default()],
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let [brake, _] = &mut this.brakes;
        ready!(brake.poll(cx));
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let count = buf.filled().len() - before;
        if let Err(exceeded) = this.pass.receive(count) {
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::other(exceeded)));
        }
        brake.passed(&this.pass, count);
        add(&this.traffic.bytes_in, count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let [_, brake] = &mut this.brakes;
        ready!(brake.poll(cx));
        // Counted before it is sent, so that two streams cannot both send the last bytes.
        this.pass.take(buf.len()).map_err(io::Error::other)?;
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        let count = match &written {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        this.pass.give_back(buf.len() - count);
        brake.passed(&this.pass, count);
        add(&this.traffic.bytes_out, count);
        written
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
