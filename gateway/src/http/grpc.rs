//! Refusals in gRPC's words (gRPC over HTTP2, "Responses"): an answer of trailers only, with details that a client can read. Pure.
use super::refusal::Problem;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

/// The media type of its messages.
pub const MEDIA_TYPE: &str = "application/grpc";
/// The status code.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The status in words.
pub const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// A `google.rpc.Status`, base64.
pub const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// What is written with a percent sign in `grpc-message`; what is not ASCII always is.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
/// Longest text in an answer, in characters: fields have bounds of a few KiB at many clients.
const LONGEST: usize = 1000;
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const DOMAIN: &str = "sallyport";

/// Whether the client of a request with these fields reads gRPC, or gRPC-Web (which reads the same fields).
pub fn is_spoken(asked: &HeaderMap) -> bool {
    asked
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(MEDIA_TYPE.as_bytes()))
}

/// The fields that tell of a problem.
pub fn fields(problem: &Problem) -> Vec<(HeaderName, HeaderValue)> {
    let code = code(problem.status);
    let text: String = problem.detail.chars().take(LONGEST).collect();
    let text = format!("{text} (sallyport decision {})", problem.id);
    let message = utf8_percent_encode(&text, ESCAPED).to_string();
    let details = STANDARD_NO_PAD.encode(status(code, &text, problem));
    let mut fields = vec![(STATUS, HeaderValue::from(code))];
    for (name, value) in [(MESSAGE, message), (DETAILS, details)] {
        fields.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
    }
    fields
}

/// gRPC's code for a status that HTTP would be given (grpc/doc/http-grpc-status-mapping), but for policies: 7 is no.
fn code(status: StatusCode) -> u16 {
    match status {
        StatusCode::FORBIDDEN => 7,
        StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED => 16,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::NOT_IMPLEMENTED => 12,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => 14,
        StatusCode::GATEWAY_TIMEOUT => 4,
        _ => 13,
    }
}

/// `google.rpc.Status` with one `google.rpc.ErrorInfo` (google/rpc/status.proto, error_details.proto).
fn status(code: u16, text: &str, problem: &Problem) -> Vec<u8> {
    let mut info = Vec::new();
    put(1, problem.error.to_ascii_uppercase().as_bytes(), &mut info);
    put(2, DOMAIN.as_bytes(), &mut info);
    for (key, value) in metadata(problem) {
        let mut entry = Vec::new();
        put(1, key.as_bytes(), &mut entry);
        put(2, value.as_bytes(), &mut entry);
        put(3, &entry, &mut info);
    }
    let mut any = Vec::new();
    put(1, ERROR_INFO.as_bytes(), &mut any);
    put(2, &info, &mut any);
    // Field 1, a number.
    let mut status = vec![1 << 3];
    varint(code.into(), &mut status);
    put(2, text.as_bytes(), &mut status);
    put(3, &any, &mut status);
    status
}

fn metadata(problem: &Problem) -> Vec<(&'static str, String)> {
    let mut metadata = vec![("decision", problem.id.clone())];
    if let Some(refusal) = &problem.refusal {
        metadata.push(("rule", refusal.reason.rule.clone()));
        let remedy = serde_json::to_value(&refusal.remedy).unwrap_or_default();
        if let Some(kind) = remedy.get("kind").and_then(Value::as_str) {
            metadata.push(("remedy", kind.to_owned()));
        }
        metadata.extend(refusal.hint.clone().map(|hint| ("hint", hint)));
    }
    metadata
}

/// A field of bytes (protobuf's encoding, wire type 2).
fn put(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_fields_are_written_as_protobuf_has_them() {
        let mut out = Vec::new();
        varint(300, &mut out);
        put(2, b"testing", &mut out);
        assert_eq!(out, b"\xac\x02\x12\x07testing");
    }

    #[test]
    fn a_message_is_one_line_of_ascii() {
        let problem = Problem {
            status: StatusCode::FORBIDDEN,
            title: "no",
            detail: "50% of `é`\r\nx: y".to_owned(),
            error: "http_request_denied",
            id: "1".to_owned(),
            refusal: None,
            close: false,
            retry_after_s: None,
        };
        let fields = fields(&problem);
        assert_eq!(fields[0], (STATUS, HeaderValue::from_static("7")));
        assert_eq!(fields[1].1, "50%25 of `%C3%A9`%0D%0Ax: y (sallyport decision 1)");
        assert_eq!(fields[2].0, DETAILS);
    }
}
