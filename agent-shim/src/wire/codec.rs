//! Frames as bytes and back. Pure; a half frame is an answer of its own, not an error.
use super::{BODY_LIMIT, Frame, HEAD_LIMIT, Head, WireError};
use bytes::{Buf, BufMut, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

const PREFIX: usize = 8;

/// Appends a frame to `out`.
///
/// # Errors
/// `TooLong` if head or body is above its limit; `out` is then unchanged.
pub fn encode<M: Serialize>(frame: &Frame<M>, out: &mut BytesMut) -> Result<(), WireError> {
    let head = serde_json::to_vec(&frame.head).map_err(|e| WireError::BadHead(e.to_string()))?;
    let head_bytes = within("head", head.len(), HEAD_LIMIT)?;
    let body_bytes = within("body", frame.body.len(), BODY_LIMIT)?;
    out.reserve(PREFIX + head.len() + frame.body.len());
    out.put_u32(head_bytes);
    out.put_u32(body_bytes);
    out.put_slice(&head);
    out.put_slice(&frame.body);
    Ok(())
}

/// Takes the first frame from `input`, or leaves it alone and answers `None` if it is not there in full yet.
///
/// # Errors
/// `TooLong` as soon as a length is above its limit, `BadHead` if the head is not a message.
pub fn decode<M: DeserializeOwned>(input: &mut BytesMut) -> Result<Option<Frame<M>>, WireError> {
    let Some(mut prefix) = input.get(..PREFIX) else {
        return Ok(None);
    };
    let head_bytes = prefix.get_u32() as usize;
    let body_bytes = prefix.get_u32() as usize;
    within("head", head_bytes, HEAD_LIMIT)?;
    within("body", body_bytes, BODY_LIMIT)?;
    let whole = PREFIX + head_bytes + body_bytes;
    if input.len() < whole {
        return Ok(None);
    }
    input.advance(PREFIX);
    let head = input.split_to(head_bytes);
    let body = input.split_to(body_bytes).freeze();
    let head: Head<M> = serde_json::from_slice(&head).map_err(|e| WireError::BadHead(e.to_string()))?;
    Ok(Some(Frame { head, body }))
}

fn within(part: &'static str, bytes: usize, limit: u32) -> Result<u32, WireError> {
    match u32::try_from(bytes) {
        Ok(n) if n <= limit => Ok(n),
        _ => Err(WireError::TooLong {
            part,
            bytes: bytes as u64,
            limit,
        }),
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
