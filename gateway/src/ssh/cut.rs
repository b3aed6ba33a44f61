//! A stream that can be ended from outside, wherever it is being read or written.
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Fails once its token is cancelled; who reads is woken.
pub(super) struct Cuttable<S> {
    stream: S,
    cut: CancellationToken,
    waiting: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Cuttable<S> {
    pub(super) fn new(stream: S, cut: CancellationToken) -> Self {
        let waiting = Box::pin(cut.clone().cancelled_owned());
        Self { stream, cut, waiting }
    }

    fn check(&self) -> io::Result<()> {
        match self.cut.is_cancelled() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            return Poll::Ready(read);
        }
        match self.waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(self.check()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
