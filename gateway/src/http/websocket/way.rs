//! One way of a WebSocket over its sockets: read, work, write. What is half done is kept, so that it can be stopped anywhere.
use super::frame::Violation;
use super::relay::{Progress, Relay};
use bytes::BytesMut;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;
use tungstenite::protocol::frame::coding::CloseCode;

/// Bytes read at once, while little comes and while much does: an idle WebSocket should cost little memory.
const READ: (usize, usize) = (4 * 1024, 64 * 1024);

/// How one way ended.
pub(super) enum Outcome {
    /// With a close frame, which has gone on.
    Closed,
    /// Without one: the side that sends is gone.
    Gone,
    /// By what came.
    Refused(Violation),
    /// By what carries it.
    Failed(io::Error),
}

/// From one side to the other.
pub(super) struct Way<F, T> {
    from: ReadHalf<F>,
    to: WriteHalf<T>,
    relay: Relay,
    input: BytesMut,
    out: BytesMut,
    /// Bytes to read at once.
    size: usize,
    /// Something was written that is not flushed.
    unflushed: bool,
    /// A close frame has gone on.
    closed: bool,
}

impl<F: AsyncRead, T: AsyncWrite> Way<F, T> {
    /// Nothing has passed yet.
    pub(super) fn new(from: ReadHalf<F>, to: WriteHalf<T>, relay: Relay) -> Self {
        Self {
            from,
            to,
            relay,
            input: BytesMut::new(),
            out: BytesMut::new(),
            size: READ.0,
            unflushed: false,
            closed: false,
        }
    }

    /// Carries until it is over. Cancel safe: it goes on where it stopped.
    pub(super) async fn carry(&mut self) -> Outcome {
        loop {
            if let Err(error) = self.write().await {
                return Outcome::Failed(error);
            }
            match self.relay.work(&mut self.input, &mut self.out) {
                Ok(Progress::Full) => {}
                Ok(Progress::Closed(_)) => {
                    self.closed = true;
                    return match self.write().await {
                        Ok(()) => Outcome::Closed,
                        Err(error) => Outcome::Failed(error),
                    };
                }
                Ok(Progress::Dry) if self.out.is_empty() => match self.read().await {
                    Ok(0) => return Outcome::Gone,
                    Ok(_) => {}
                    Err(error) => return Outcome::Failed(error),
                },
                Ok(Progress::Dry) => {}
                Err(violation) => return Outcome::Refused(violation),
            }
        }
    }

    /// Writes what was let go before, then a close frame, unless one went before it.
    pub(super) async fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()> {
        if !self.closed {
            self.closed = true;
            let written = self.relay.writer().close(&mut self.out, code, reason);
            written.map_err(io::Error::other)?;
        }
        self.write().await?;
        self.to.shutdown().await
    }

    /// The end of what goes on, after a close frame.
    pub(super) async fn end(&mut self, limit: Duration) {
        match timeout(limit, self.to.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a WebSocket's connection was gone at its end"),
            Err(_) => tracing::debug!("a WebSocket's connection did not end in time"),
        }
    }

    /// What is left of it to be read.
    pub(super) fn into_source(self) -> ReadHalf<F> {
        self.from
    }

    async fn read(&mut self) -> io::Result<usize> {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.input.reserve(self.size);
        let count = self.from.read_buf(&mut self.input).await?;
        self.size = match count >= self.size {
            true => READ.1.min(self.size * 4),
            false => READ.0.max(self.size / 2),
        };
        Ok(count)
    }

    async fn write(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            self.unflushed = true;
            if self.to.write_buf(&mut self.out).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        if self.unflushed {
            self.out = BytesMut::new();
            self.to.flush().await?;
            self.unflushed = false;
        }
        Ok(())
    }
}

/// Reads and drops what still comes, until the side that sends has closed too: what is left unread would reset the connection
/// before the last words have been read.
pub(super) async fn linger<F: AsyncRead>(mut from: ReadHalf<F>, limit: Duration) {
    let reading = async {
        let mut piece = vec![0; READ.0];
        while matches!(from.read(&mut piece).await, Ok(1..)) {}
    };
    if timeout(limit, reading).await.is_err() {
        tracing::debug!("a WebSocket's client did not close after the last words");
    }
}
