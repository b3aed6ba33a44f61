//! The socket of a connection that was dialled: straight to its address, or through the parent proxy.
use crate::stream::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A dialled byte stream.
#[derive(Debug)]
pub enum Line {
    /// Straight.
    Direct(TcpStream),
    /// Through the parent proxy, after its answer to CONNECT.
    Through(Stream),
}

/// The same call on whichever stream it is.
macro_rules! either {
    ($line:expr, $stream:ident => $call:expr) => {
        match $line {
            Line::Direct($stream) => $call,
            Line::Through($stream) => $call,
        }
    };
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(&mut *self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(&mut *self, stream => Pin::new(stream).poll_write(cx, buf))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, stream => Pin::new(stream).poll_flush(cx))
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx))
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(&mut *self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }
    fn is_write_vectored(&self) -> bool {
        either!(self, stream => stream.is_write_vectored())
    }
}
