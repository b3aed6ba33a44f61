//! Pushes over smart HTTP (gitprotocol-http): what they change is read from the request before anything of it is sent on.
use super::coding::{Coding, Decoder, PIECE, codings};
use super::upload::Upload;
use crate::git::push::{Bounds, Change, Push, PushFault, PushReader, Reading};
use crate::limits::Limits;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, EXPECT};
use sallyport_policy::HttpRequest;

/// The media type of a push.
const REQUEST: &[u8] = b"application/x-git-receive-pack-request";
/// Bytes that may come for one byte of what they decode to.
const RAW: usize = 2;
/// Refs that a record names, at most.
const NAMED: usize = 8;

/// Whether this is a push, so that what it changes stands in its body.
pub fn is_push(request: &HttpRequest) -> bool {
    request.method == "POST" && request.path.as_str().ends_with("/git-receive-pack")
}

/// Whether git itself sends it and does not wait for a word before the body.
pub fn is_sent_by_git(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes() == REQUEST)
        && !headers.contains_key(EXPECT)
}

/// Reads as much of the body as tells what the push changes; the body will pass unchanged.
pub async fn read(headers: &HeaderMap, body: &mut Upload, limits: &Limits) -> Result<Push, PushFault> {
    read_with(PushReader::new(bounds(limits)), headers, body, limits).await
}

/// Reads which refs the push names, so that it can be told of each; the body will pass unchanged.
pub async fn read_names(headers: &HeaderMap, body: &mut Upload, limits: &Limits) -> Result<Push, PushFault> {
    read_with(PushReader::of_commands(bounds(limits)), headers, body, limits).await
}

fn bounds(limits: &Limits) -> Bounds {
    Bounds {
        refs: limits.push_refs,
        bytes: limits.push_bytes,
    }
}

async fn read_with(
    mut reader: PushReader,
    headers: &HeaderMap,
    body: &mut Upload,
    limits: &Limits,
) -> Result<Push, PushFault> {
    let bounds = bounds(limits);
    let mut plain = Plain::of(headers)?;
    let mut raw = 0;
    loop {
        let piece = body
            .look_further(limits.request_body_idle)
            .await
            .map_err(|error| PushFault::Unreadable(format!("its body broke off: {error}")))?;
        let Some(piece) = piece else {
            return reader.end();
        };
        if let Some(push) = plain.feed(&piece, &mut reader)? {
            return Ok(push);
        }
        raw += piece.len();
        if raw > bounds.bytes.saturating_mul(RAW) {
            return reader.end();
        }
    }
}

/// Undoes the body's coding.
enum Plain {
    Already,
    Gzip(Box<Decoder>, Vec<u8>),
}

impl Plain {
    fn of(headers: &HeaderMap) -> Result<Self, PushFault> {
        match codings(headers).as_deref() {
            Ok([]) => Ok(Self::Already),
            Ok([Coding::Gzip]) => Ok(Self::Gzip(
                Box::new(Decoder::new(&[Coding::Gzip])),
                vec![0; PIECE],
            )),
            Ok(_) => Err(PushFault::Unreadable(
                "its content coding is none that git uses: send it plain or gzip'd".to_owned(),
            )),
            Err(cannot) => Err(PushFault::Unreadable(cannot.to_string())),
        }
    }

    fn feed(&mut self, piece: &[u8], reader: &mut PushReader) -> Result<Option<Push>, PushFault> {
        let known = |reading| match reading {
            Reading::Known(push) => Some(push),
            Reading::NeedMore => None,
        };
        let Self::Gzip(decoder, decoded) = self else {
            return reader.feed(piece).map(known);
        };
        decoder.feed(piece);
        loop {
            let taken = decoder
                .take(decoded)
                .map_err(|error| PushFault::Unreadable(format!("its content coding is broken: {error}")))?;
            if taken == 0 {
                return Ok(None);
            }
            if let Some(push) = known(reader.feed(&decoded[..taken])?) {
                return Ok(Some(push));
            }
        }
    }
}

/// What a push changes, in words for the record.
pub fn told(push: &Push) -> String {
    let named = push.changes.iter().take(NAMED).map(|(name, change)| {
        let how = match change {
            Change::Created => "created",
            Change::Deleted => "deleted",
            Change::Forward => "moved forward",
            Change::Unshown => "forced, or not shown to move forward",
        };
        format!("`{name}` {how}")
    });
    let mut text = format!("the push: {}", named.collect::<Vec<_>>().join(", "));
    if let Some(more) = push.changes.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more refs"));
    }
    text
}
