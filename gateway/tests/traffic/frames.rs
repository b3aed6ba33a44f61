//! HTTP/2 frames by hand, right and wrong ones (RFC 9113 section 4.1).

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// One frame that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

impl Came<'_> {
    pub(crate) fn code_at(&self, at: usize) -> Option<u32> {
        let code = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(code.try_into().unwrap()))
    }
}

/// The first frame, where it is whole, and what is behind it.
pub(crate) fn read(bytes: &[u8]) -> Option<(Came<'_>, &[u8])> {
    let [a, b, c, kind, flags, stream @ ..] = bytes else {
        return None;
    };
    let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
    let (stream, rest) = stream.split_at_checked(4)?;
    let (payload, rest) = rest.split_at_checked(length)?;
    let came = Came {
        kind: *kind,
        flags: *flags,
        stream: u32::from_be_bytes(stream.try_into().unwrap()) & (u32::MAX >> 1),
        payload,
    };
    Some((came, rest))
}

/// `GET /` of an authority over TLS, in HPACK with static entries and one literal (RFC 7541).
pub(crate) fn get(authority: &str) -> Vec<u8> {
    [&[0x82, 0x87, 0x84][..], &field(":authority", authority)].concat()
}

/// A field as a literal that is put into no table. Up to 126 bytes each.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x00];
    for text in [name, value] {
        bytes.push(
            u8::try_from(text.len())
                .ok()
                .filter(|length| *length < 127)
                .unwrap(),
        );
        bytes.extend(text.as_bytes());
    }
    bytes
}
