//! One way of a WebSocket: frames come in, are looked into, and go on. Pure: bytes in, bytes out, however they are cut.
//!
//! A message goes on in pieces as it comes, in frames of its own, so that none is held back whole; control frames pass between
//! them at once. Where there is something to look for, compressed messages are inflated and deflated anew with windows of the
//! gateway's own, since one changed message would make the windows of both ends drift apart (RFC 7692 section 7.2.3.2).
use super::deflate::{Deflater, Inflater};
use super::extension::Coding;
use super::frame::{self, Head, Open, Side, Violation, Writer};
use super::sight::Sight;
use bytes::BytesMut;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// A frame is let go when it has this many bytes, whatever else is waiting.
const FRAME: usize = 32 * 1024;
/// No more is worked on while this many bytes wait to be written.
const FULL: usize = 64 * 1024;
/// Inflated bytes taken at once.
const PIECE: usize = 32 * 1024;

/// How work on the input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It needs more.
    Dry,
    /// There is more to do once the output is written.
    Full,
    /// The side that sends has closed; nothing of it passes any more. The code, where it gave one.
    Closed(Option<u16>),
}

/// One way of a WebSocket.
pub struct Relay {
    from: Side,
    writer: Writer,
    sight: Sight,
    /// How the side compresses, where both ends agreed that it may.
    coding: Option<Coding>,
    codec: Option<Box<Codec>>,
    /// A compressed message has passed that was not looked into.
    unread: bool,
    /// Bytes of one message, inflated.
    limit: u64,
    frame: Option<Open>,
    message: Option<Message>,
    /// What of the message may go on and has not.
    ready: BytesMut,
    closed: Option<Option<u16>>,
}

/// The windows of compressed messages that are looked into; made when the first one comes.
struct Codec {
    inflater: Inflater,
    deflater: Option<Deflater>,
    piece: Vec<u8>,
}

/// A message that is passing.
struct Message {
    opcode: OpCode,
    size: u64,
    /// How it comes and how it goes on.
    passing: Passing,
    /// Whether a frame of it has gone on.
    begun: bool,
    /// All of it has come; what is inside the inflater is still to be taken.
    ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// As it is.
    Plain,
    /// Compressed, and there is nothing to look for.
    Unread,
    /// Inflated, and deflated anew where the other side's window allows.
    Inflated,
}

impl Relay {
    /// For what `from` sends, which it compresses as `coding` says; `limit` bounds a message, inflated, in bytes.
    pub fn new(from: Side, coding: Option<Coding>, sight: Sight, limit: u64) -> Self {
        Self {
            from,
            writer: Writer::new(from),
            sight,
            coding,
            codec: None,
            unread: false,
            limit,
            frame: None,
            message: None,
            ready: BytesMut::new(),
            closed: None,
        }
    }

    /// Takes what it can off the input and appends to `out` what goes on. What is not a `Violation` is whole frames.
    pub fn work(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Progress, Violation> {
        while self.closed.is_none() && out.len() < FULL {
            if !self.step(input, out)? {
                self.let_go(out)?;
                return Ok(Progress::Dry);
            }
        }
        Ok(self.closed.map_or(Progress::Full, Progress::Closed))
    }

    /// Writes frames towards the side that these go to.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// One step; false where it needs more input.
    fn step(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<bool, Violation> {
        if self.inflate(out)? {
            return Ok(true);
        }
        let Some(open) = &mut self.frame else {
            let Some(head) = frame::read(input, self.from)? else {
                return Ok(false);
            };
            self.begin(head)?;
            return Ok(true);
        };
        if let OpCode::Control(control) = open.head.opcode {
            if (input.len() as u64) < open.left() {
                return Ok(false);
            }
            let payload = open.take(input);
            self.frame = None;
            self.control(control, &payload, out)?;
            return Ok(true);
        }
        if open.left() > 0 && input.is_empty() {
            return Ok(false);
        }
        let payload = open.take(input);
        let last = open.head.last;
        let whole = open.left() == 0;
        self.data(&payload, out)?;
        if whole {
            self.frame = None;
            if last {
                self.end(out)?;
            }
        }
        Ok(true)
    }

    fn begin(&mut self, head: Head) -> Result<(), Violation> {
        match (head.opcode, &self.message) {
            (OpCode::Control(_), _) => {}
            (OpCode::Data(Data::Continue), None) => {
                return Err(Violation::protocol("a continuation frame continues no message"));
            }
            (OpCode::Data(Data::Continue), Some(_)) if head.coded => {
                return Err(Violation::protocol(
                    "a continuation frame is said to be compressed",
                ));
            }
            (OpCode::Data(Data::Continue), Some(_)) => {}
            (OpCode::Data(_), Some(_)) => {
                return Err(Violation::protocol("a message begins within another"));
            }
            (OpCode::Data(_), None) => self.begin_message(head)?,
        }
        if let (OpCode::Data(_), Some(message)) = (head.opcode, &self.message)
            && message.size.saturating_add(head.length) > self.limit
        {
            return Err(self.too_long());
        }
        self.frame = Some(Open::new(head));
        Ok(())
    }

    fn begin_message(&mut self, head: Head) -> Result<(), Violation> {
        self.sight.begin(head.opcode == OpCode::Data(Data::Text));
        let passing = match (head.coded, self.coding) {
            (false, _) => Passing::Plain,
            (true, None) => {
                return Err(Violation::protocol(
                    "a message is compressed, which was not agreed on",
                ));
            }
            (true, Some(_)) if self.codec.is_some() => Passing::Inflated,
            (true, Some(coding)) if self.sight.looks() && self.unread && coding.takeover => {
                return Err(Violation::new(
                    CloseCode::Away,
                    "the session has credentials since this WebSocket was opened, and its compressed messages were not read \
                     from the beginning; connect again",
                ));
            }
            (true, Some(coding)) if self.sight.looks() => {
                self.codec = Some(Box::new(Codec {
                    inflater: Inflater::new(coding),
                    deflater: Deflater::new(coding),
                    piece: vec![0; PIECE],
                }));
                Passing::Inflated
            }
            (true, Some(_)) => {
                self.unread = true;
                Passing::Unread
            }
        };
        self.message = Some(Message {
            opcode: head.opcode,
            size: 0,
            passing,
            begun: false,
            ending: false,
        });
        Ok(())
    }

    fn control(&mut self, control: Control, payload: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        let closing = control == Control::Close;
        if closing {
            frame::check_close(payload)?;
        }
        self.let_go(out)?;
        let mut clean = BytesMut::with_capacity(payload.len());
        self.sight.control(payload, &mut clean)?;
        self.writer
            .write(out, OpCode::Control(control), (true, false), &clean)?;
        if closing {
            let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            self.closed = Some(code);
        }
        Ok(())
    }

    /// Some payload of a data frame, its mask taken off.
    fn data(&mut self, payload: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        match (&self.message, &mut self.codec) {
            (Some(message), Some(codec)) if message.passing == Passing::Inflated => {
                codec.inflater.feed(payload);
                Ok(())
            }
            _ => self.pass(payload, out),
        }
    }

    /// The last frame of a message has come.
    fn end(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        if let (Some(message), Some(codec)) = (&mut self.message, &mut self.codec)
            && message.passing == Passing::Inflated
        {
            codec.inflater.feed_end();
            message.ending = true;
            return Ok(());
        }
        self.finish(out)
    }

    /// Takes out what is inside the inflater; whether there was anything to do.
    fn inflate(&mut self, out: &mut BytesMut) -> Result<bool, Violation> {
        let (Some(message), Some(codec)) = (&self.message, &mut self.codec) else {
            return Ok(false);
        };
        if message.passing != Passing::Inflated {
            return Ok(false);
        }
        let ending = message.ending;
        let made = codec.inflater.take(&mut codec.piece)?;
        if made > 0 {
            let piece = std::mem::take(&mut codec.piece);
            let passed = self.pass(&piece[..made], out);
            if let Some(codec) = &mut self.codec {
                codec.piece = piece;
            }
            return passed.map(|()| true);
        }
        if ending {
            codec.inflater.finish();
            self.finish(out)?;
        }
        Ok(ending)
    }

    /// Looks at a piece of a message, and lets go of it what may go on.
    fn pass(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        let Some(message) = &mut self.message else {
            return Ok(());
        };
        message.size = message.size.saturating_add(piece.len() as u64);
        if message.size > self.limit {
            return Err(self.too_long());
        }
        if message.passing == Passing::Unread {
            self.ready.extend_from_slice(piece);
        } else {
            let mut clean = BytesMut::new();
            self.sight.push(piece, &mut clean)?;
            self.make_ready(&clean)?;
        }
        match self.ready.len() >= FRAME {
            true => self.emit(false, out),
            false => Ok(()),
        }
    }

    fn make_ready(&mut self, clean: &[u8]) -> Result<(), Violation> {
        match self.deflater() {
            Some(deflater) => {
                let mut ready = BytesMut::new();
                deflater.push(clean, &mut ready)?;
                self.ready.unsplit(ready);
                Ok(())
            }
            None => {
                self.ready.extend_from_slice(clean);
                Ok(())
            }
        }
    }

    /// The one for the message that is passing.
    fn deflater(&mut self) -> Option<&mut Deflater> {
        let message = self.message.as_ref()?;
        (message.passing == Passing::Inflated)
            .then_some(self.codec.as_mut()?)?
            .deflater
            .as_mut()
    }

    /// Nothing more comes for now: what may go on goes on.
    fn let_go(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        let mut ready = std::mem::take(&mut self.ready);
        if let Some(deflater) = self.deflater() {
            deflater.flush(&mut ready)?;
        }
        self.ready = ready;
        match self.ready.is_empty() {
            true => Ok(()),
            false => self.emit(false, out),
        }
    }

    /// All of a message has been passed.
    fn finish(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        if self
            .message
            .as_ref()
            .is_some_and(|message| message.passing != Passing::Unread)
        {
            let mut clean = BytesMut::new();
            self.sight.finish(&mut clean)?;
            self.make_ready(&clean)?;
        }
        let mut ready = std::mem::take(&mut self.ready);
        if let Some(deflater) = self.deflater() {
            deflater.finish(&mut ready)?;
        }
        self.ready = ready;
        self.emit(true, out)?;
        self.message = None;
        Ok(())
    }

    fn emit(&mut self, last: bool, out: &mut BytesMut) -> Result<(), Violation> {
        let coded = self.deflater().is_some();
        let Some(message) = &mut self.message else {
            return Ok(());
        };
        let coded = coded || message.passing == Passing::Unread;
        let opcode = match std::mem::replace(&mut message.begun, true) {
            true => (OpCode::Data(Data::Continue), false),
            false => (message.opcode, coded),
        };
        self.writer.write(out, opcode.0, (last, opcode.1), &self.ready)?;
        self.ready.clear();
        Ok(())
    }

    fn too_long(&self) -> Violation {
        Violation::new(
            CloseCode::Size,
            format!(
                "a message has more than {} bytes, which is the most that passes",
                self.limit
            ),
        )
    }
}

#[cfg(test)]
mod tests;
