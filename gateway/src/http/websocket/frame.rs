//! Frames of WebSocket (RFC 6455 section 5): heads read strictly, frames written anew with the mask that their way asks for. Pure.
use bytes::{Buf, BufMut, BytesMut};
use std::io::Cursor;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, OpCode};

/// Payload bytes of a control frame, at most (RFC 6455 section 5.5).
pub const CONTROL_BYTES: u64 = 125;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The machine: its frames are masked.
    Client,
    /// The upstream: its frames are not.
    Upstream,
}

/// What ends a WebSocket, with the code that says it (RFC 6455 section 7.4.1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Violation {
    /// For the close frame.
    pub code: CloseCode,
    /// For the record, and as far as it fits for the close frame.
    pub sentence: String,
}

impl Violation {
    /// One with this code.
    pub fn new(code: CloseCode, sentence: impl Into<String>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
        }
    }

    /// A breach of the protocol: 1002.
    pub fn protocol(sentence: impl Into<String>) -> Self {
        Self::new(CloseCode::Protocol, sentence)
    }
}

/// The head of a frame that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Whether it ends its message.
    pub last: bool,
    /// RSV1: the message is compressed (RFC 7692 section 6).
    pub coded: bool,
    /// What it is.
    pub opcode: OpCode,
    /// Payload bytes.
    pub length: u64,
    /// The key that the payload is masked with.
    pub mask: Option<[u8; 4]>,
}

/// Takes a whole head off the input; none where there is not enough yet.
pub fn read(input: &mut BytesMut, from: Side) -> Result<Option<Head>, Violation> {
    let mut cursor = Cursor::new(&input[..]);
    let parsed = FrameHeader::parse(&mut cursor).map_err(|error| Violation::protocol(error.to_string()))?;
    let Some((header, length)) = parsed else {
        return Ok(None);
    };
    let taken = cursor.position();
    check(&header, length, from)?;
    if header.len(length) as u64 != taken {
        return Err(Violation::protocol(
            "a frame's length is not in its shortest form",
        ));
    }
    input.advance(header.len(length));
    Ok(Some(Head {
        last: header.is_final,
        coded: header.rsv1,
        opcode: header.opcode,
        length,
        mask: header.mask,
    }))
}

fn check(header: &FrameHeader, length: u64, from: Side) -> Result<(), Violation> {
    if header.rsv2 || header.rsv3 {
        return Err(Violation::protocol(
            "a frame has reserved bits that no extension gave a meaning",
        ));
    }
    match (from, header.mask) {
        (Side::Client, None) => return Err(Violation::protocol("a frame of the client is not masked")),
        (Side::Upstream, Some(_)) => return Err(Violation::protocol("a frame of the upstream is masked")),
        _ => {}
    }
    if length > i64::MAX as u64 {
        return Err(Violation::protocol("a frame's length is no length"));
    }
    if let OpCode::Control(_) = header.opcode {
        if !header.is_final {
            return Err(Violation::protocol("a control frame is in pieces"));
        }
        if length > CONTROL_BYTES {
            return Err(Violation::protocol("a control frame has more than 125 bytes"));
        }
        if header.rsv1 {
            return Err(Violation::protocol("a control frame is said to be compressed"));
        }
    }
    Ok(())
}

/// A frame whose payload is coming.
#[derive(Debug)]
pub struct Open {
    /// Its head.
    pub head: Head,
    taken: u64,
}

impl Open {
    /// One of which nothing but the head has come.
    pub fn new(head: Head) -> Self {
        Self { head, taken: 0 }
    }

    /// Payload bytes to come.
    pub fn left(&self) -> u64 {
        self.head.length - self.taken
    }

    /// Takes of the payload what has come, without its mask.
    pub fn take(&mut self, input: &mut BytesMut) -> BytesMut {
        let count = usize::try_from(self.left()).map_or(input.len(), |left| left.min(input.len()));
        let mut payload = input.split_to(count);
        if let Some(key) = self.head.mask {
            mask(&mut payload, key, self.taken);
        }
        self.taken += count as u64;
        payload
    }
}

/// Puts a mask on, or takes it off (RFC 6455 section 5.3). `at`: how many bytes of the payload came before these.
pub fn mask(bytes: &mut [u8], mut key: [u8; 4], at: u64) {
    key.rotate_left((at % 4) as usize);
    let (fours, rest) = bytes.as_chunks_mut::<4>();
    for four in fours {
        for (byte, key) in four.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
    for (byte, key) in rest.iter_mut().zip(key) {
        *byte ^= key;
    }
}

/// Writes frames towards one side.
#[derive(Debug)]
pub struct Writer {
    from: Side,
}

impl Writer {
    /// For frames that go on from this side to the other.
    pub fn new(from: Side) -> Self {
        Self { from }
    }

    /// Appends a whole frame, masked with a fresh key where it is one of the client's.
    pub fn write(
        &self,
        out: &mut BytesMut,
        opcode: OpCode,
        (last, coded): (bool, bool),
        payload: &[u8],
    ) -> Result<(), Violation> {
        let failed =
            |what: String| Violation::new(CloseCode::Error, format!("a frame cannot be written: {what}"));
        let key = match self.from {
            Side::Client => {
                let mut key = [0; 4];
                aws_lc_rs::rand::fill(&mut key).map_err(|_| failed("no random numbers".to_owned()))?;
                Some(key)
            }
            Side::Upstream => None,
        };
        let header = FrameHeader {
            is_final: last,
            rsv1: coded,
            opcode,
            mask: key,
            ..FrameHeader::default()
        };
        out.reserve(header.len(payload.len() as u64) + payload.len());
        header
            .format(payload.len() as u64, &mut (&mut *out).writer())
            .map_err(|error| failed(error.to_string()))?;
        let begin = out.len();
        out.extend_from_slice(payload);
        if let Some(key) = key {
            mask(&mut out[begin..], key, 0);
        }
        Ok(())
    }

    /// Appends a close frame; of `reason` as much as fits (RFC 6455 section 5.5.1).
    pub fn close(&self, out: &mut BytesMut, code: CloseCode, reason: &str) -> Result<(), Violation> {
        let most = CONTROL_BYTES as usize - 2;
        let mut payload = u16::from(code).to_be_bytes().to_vec();
        payload.extend_from_slice(&reason.as_bytes()[..reason.floor_char_boundary(most)]);
        self.write(out, OpCode::Control(Control::Close), (true, false), &payload)
    }
}

/// Whether the payload of a close frame is one: nothing, or a code that may be sent and a reason in UTF-8.
pub fn check_close(payload: &[u8]) -> Result<(), Violation> {
    let [first, second, reason @ ..] = payload else {
        return match payload {
            [] => Ok(()),
            _ => Err(Violation::protocol("a close frame has half a code")),
        };
    };
    let code = CloseCode::from(u16::from_be_bytes([*first, *second]));
    if !code.is_allowed() {
        return Err(Violation::protocol(format!(
            "a close frame has the code {code}, which is not for sending"
        )));
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(()),
        Err(_) => Err(Violation::new(
            CloseCode::Invalid,
            "a close frame's reason is no text",
        )),
    }
}
