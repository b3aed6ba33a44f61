//! Whole messages of a log-in, read and written; what comes behind one stays in the stream.
use super::message::LOG_IN_BYTES;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Reads one message: its kind and body. A longer one than a log-in has is `InvalidData`.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await?;
    let body = (length as usize)
        .checked_sub(4)
        .filter(|body| *body <= LOG_IN_BYTES);
    let Some(body) = body else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "a message of kind {:?} announces a length of {length}",
                char::from(kind)
            ),
        ));
    };
    let mut bytes = vec![0; body];
    stream.read_exact(&mut bytes).await?;
    Ok((kind, bytes))
}

/// Writes messages out.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
