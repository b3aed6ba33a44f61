//! Carries numbered frames over connections that come and go; both ends use it.
use crate::wire::{Frame, Link, Receipt, WireError, decode, encode};
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

const READ_BYTES: usize = 64 * 1024;

/// Why a connection ended. All of them mean: connect again.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer closed it.
    #[error("the connection was closed")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// The peer does not keep to the protocol.
    #[error("the peer broke the protocol: {0}")]
    Wire(#[from] WireError),
}

/// Reads frames from a byte stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Begins at the stream's present position.
    pub fn new(from: R) -> Self {
        FrameReader {
            from,
            buffer: BytesMut::new(),
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// `Closed` at the end of the stream, else what went wrong.
    pub async fn next<M: DeserializeOwned>(&mut self) -> Result<Frame<M>, ChannelError> {
        loop {
            if let Some(frame) = decode(&mut self.buffer)? {
                return Ok(frame);
            }
            self.buffer.reserve(READ_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Err(ChannelError::Closed);
            }
        }
    }
}

/// One end's lasting state and the way to send: outlives every connection.
#[derive(Debug)]
pub struct Channel<Out> {
    link: Mutex<Link<Out>>,
    wake: Notify,
}

impl<Out> Default for Channel<Out> {
    fn default() -> Self {
        Channel {
            link: Mutex::new(Link::default()),
            wake: Notify::new(),
        }
    }
}

impl<Out: Clone + Serialize> Channel<Out> {
    /// Queues a message; it is sent now or after the next connection, once.
    pub fn send(&self, message: Out, body: Bytes) {
        self.link().send(message, body);
        self.wake.notify_one();
    }

    /// Forgets both numberings and all that was not acknowledged: the peer is another one than before.
    pub fn reset(&self) {
        *self.link() = Link::default();
    }

    /// Bytes and frames kept because the peer has not acknowledged them.
    pub fn kept(&self) -> (usize, usize) {
        let link = self.link();
        (link.kept_bytes(), link.kept_frames())
    }

    /// A frame with the first message of a connection.
    pub fn hello(&self, message: Out) -> Frame<Out> {
        self.link().unnumbered(Some(message))
    }

    /// Carries frames both ways until the connection ends; `acknowledged` is what the peer's hello said.
    pub async fn run<In, R, W>(
        &self,
        reader: &mut FrameReader<R>,
        mut writer: W,
        acknowledged: u64,
        mut deliver: impl FnMut(In, Bytes),
    ) -> ChannelError
    where
        In: DeserializeOwned,
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if let Err(error) = self.link().acknowledge(acknowledged) {
            return error.into();
        }
        let receive = async {
            loop {
                let frame = reader.next::<In>().await?;
                let receipt = self
                    .link()
                    .receive(frame.head.sequence, frame.head.acknowledged)?;
                if receipt == Receipt::Deliver {
                    if let Some(message) = frame.head.message {
                        deliver(message, frame.body);
                    }
                    self.wake.notify_one();
                }
            }
        };
        let transmit = self.transmit(&mut writer, acknowledged);
        let ended: Result<(), ChannelError> = tokio::select! {
            ended = receive => ended,
            ended = transmit => ended,
        };
        ended.err().unwrap_or(ChannelError::Closed)
    }

    async fn transmit<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut W,
        mut written: u64,
    ) -> Result<(), ChannelError> {
        let mut told = u64::MAX;
        let mut buffer = BytesMut::new();
        loop {
            {
                let link = self.link();
                while buffer.len() < READ_BYTES {
                    let Some(frame) = link.next_after(written) else {
                        break;
                    };
                    written = frame.head.sequence;
                    encode(&frame, &mut buffer)?;
                }
                if buffer.is_empty() && told != link.received() {
                    encode(&link.unnumbered(None), &mut buffer)?;
                }
                told = link.received();
            }
            if buffer.is_empty() {
                self.wake.notified().await;
                continue;
            }
            writer.write_all_buf(&mut buffer).await?;
            writer.flush().await?;
        }
    }

    fn link(&self) -> MutexGuard<'_, Link<Out>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one frame outside of [`Channel::run`]: the hello.
///
/// # Errors
/// Encoding or writing failed.
pub async fn write_frame<M: Serialize, W: AsyncWrite + Unpin>(
    writer: &mut W,
    frame: &Frame<M>,
) -> Result<(), ChannelError> {
    let mut buffer = BytesMut::new();
    encode(frame, &mut buffer)?;
    writer.write_all_buf(&mut buffer).await?;
    Ok(writer.flush().await?)
}
