//! A byte stream of any kind, whose first bytes can be looked at before they are taken.
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What every stream must be able to do.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A stream with a few bytes already read.
pub struct Stream {
    seen: BytesMut,
    inner: Box<dyn Io>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("seen_bytes", &self.seen.len())
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Wraps a stream of which nothing was read.
    pub fn new(inner: impl Io + 'static) -> Self {
        Self {
            seen: BytesMut::new(),
            inner: Box::new(inner),
        }
    }

    /// The bytes looked at so far.
    pub fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// Takes the first `count` of the bytes looked at, or all of them, off the stream.
    pub fn skip(&mut self, count: usize) {
        self.seen.advance(count.min(self.seen.len()));
    }

    /// Reads more without taking it; false at the end of the stream. Cancel safe.
    pub async fn look_further(&mut self) -> io::Result<bool> {
        self.seen.reserve(4096);
        Ok(self.inner.read_buf(&mut self.seen).await? > 0)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.seen.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let count = self.seen.len().min(buf.remaining());
        buf.put_slice(&self.seen[..count]);
        self.seen.advance(count);
        if self.seen.is_empty() {
            // A connection may idle for long: it keeps no buffer that it needs no more.
            self.seen = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(ready!(Pin::new(&mut self.inner).poll_shutdown(cx)))
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn what_was_looked_at_is_read_again() {
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(b"hello world").await.unwrap();
        drop(client);
        let mut stream = Stream::new(server);
        assert!(stream.look_further().await.unwrap());
        assert_eq!(stream.seen(), b"hello world");
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&first[..], rest.as_str()), (&b"hello"[..], " world"));
    }
}
