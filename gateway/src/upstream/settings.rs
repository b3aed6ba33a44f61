//! Whether an HTTP/2 server takes extended CONNECT (RFC 8441 section 3). It says so in the frame with which it begins, of which
//! hyper does not tell when it has come.
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// RFC 9113 section 4.1.
const FRAME_HEAD: usize = 9;
const SETTINGS: u8 = 4;
/// RFC 8441 section 3.
const ENABLE_CONNECT_PROTOCOL: [u8; 6] = [0, 8, 0, 0, 0, 1];

/// Whether extended CONNECT is taken; nothing until it is known.
pub(super) type Told = watch::Receiver<Option<bool>>;

/// A stream whose first frame is looked at while it is read.
pub(super) struct Settings<S> {
    inner: S,
    begun: Vec<u8>,
    tell: Option<watch::Sender<Option<bool>>>,
}

/// Looks at a stream of which nothing was read.
pub(super) fn settings<S>(inner: S) -> (Settings<S>, Told) {
    let (tell, told) = watch::channel(None);
    let stream = Settings {
        inner,
        begun: Vec::new(),
        tell: Some(tell),
    };
    (stream, told)
}

/// What the first frame says; nothing where it is not whole yet.
fn takes_extended_connect(bytes: &[u8]) -> Option<bool> {
    let [a, b, c, kind, ..] = bytes else {
        return None;
    };
    let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
    if *kind != SETTINGS {
        return Some(false);
    }
    let entries = bytes.get(FRAME_HEAD..FRAME_HEAD + length)?;
    Some(entries.chunks(6).any(|entry| entry == ENABLE_CONNECT_PROTOCOL))
}

impl<S: AsyncRead + Unpin> AsyncRead for Settings<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        if let Some(tell) = this.tell.take() {
            this.begun.extend_from_slice(&buf.filled()[before..]);
            match takes_extended_connect(&this.begun) {
                Some(answer) => {
                    this.begun = Vec::new();
                    tell.send_replace(Some(answer));
                }
                None => this.tell = Some(tell),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Settings<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn told(bytes: &[u8]) -> Option<bool> {
        let (mut server, client) = tokio::io::duplex(3);
        let (mut stream, mut told) = settings(client);
        let reading = async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            all
        };
        let writing = async move {
            server.write_all(bytes).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let (read, ()) = tokio::join!(reading, writing);
        assert_eq!(read, bytes);
        told.wait_for(Option::is_some).await.ok().and_then(|told| *told)
    }

    #[tokio::test]
    async fn only_the_whole_first_frame_tells() {
        let with = [0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100, 0, 8, 0, 0, 0, 1];
        assert_eq!(told(&with).await, Some(true));
        assert_eq!(
            told(&[&with[..], &[0, 0, 0, 4, 1, 0, 0, 0, 0]].concat()).await,
            Some(true)
        );
        assert_eq!(told(&with[..20]).await, None);
        let off = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0];
        assert_eq!(told(&off).await, Some(false));
        assert_eq!(told(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await, Some(false));
        assert_eq!(told(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, Some(false));
    }
}
