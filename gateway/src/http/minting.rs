//! Answers to log-ins: what they give is kept here, and the agent gets a placeholder of it in the same answer.
use super::coding::{CannotLookInside, Decoder, PIECE, codings};
use super::{Body, Channel};
use crate::Shared;
use crate::payload::Fault;
use crate::secret::SessionSecrets;
use crate::secret::capture::{Captured, LogIn, captured};
use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use sallyport_policy::AnswerPart;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::time::timeout;

/// Looks for values in an answer to a log-in: in its head whatever it says, in its body where it says yes or sends elsewhere. They are in force when this returns, with the
/// secrets by which the answer must be cleaned and the body as it came. What cannot be looked into must not pass.
pub async fn taken(
    (shared, channel): (&Shared, &Channel),
    log_ins: Vec<LogIn>,
    (head, body): (&Parts, Body),
    secrets: Arc<SessionSecrets>,
) -> Result<(Arc<SessionSecrets>, Body), CannotLookInside> {
    if log_ins.is_empty() {
        return Ok((secrets, body));
    }
    let gives = head.status.is_success() || head.status.is_redirection();
    let reads = gives && !body.is_end_stream() && reads_body(&log_ins);
    let (plain, body) = match reads {
        true => whole(shared, head, body).await?,
        false => (Vec::new(), body),
    };
    let mut found: Vec<Captured> = Vec::new();
    for (credential, parts) in &log_ins {
        let values = captured(credential, parts, (head.status, &head.headers), &plain);
        found.extend(values.map_err(|cannot| CannotLookInside(cannot.to_string()))?);
    }
    if found.is_empty() {
        return Ok((secrets, body));
    }
    let (sessions, session) = (shared.sessions.clone(), channel.session.clone());
    let kept = tokio::task::spawn_blocking(move || sessions.capture(&session, found)).await;
    let kept = kept.map_err(|error| CannotLookInside(error.to_string()))?;
    Ok((kept.map_err(|error| CannotLookInside(error.to_string()))?, body))
}

/// Whether some value stands in the body.
fn reads_body(log_ins: &[LogIn]) -> bool {
    let mut parts = log_ins.iter().flat_map(|(_, parts)| parts);
    parts.any(|part| !matches!(part, AnswerPart::Header(_)))
}

/// The body decoded, and once more as it came.
async fn whole(shared: &Shared, head: &Parts, mut body: Body) -> Result<(Vec<u8>, Body), CannotLookInside> {
    let most = shared.limits.log_in_answer_bytes;
    let (mut coded, mut trailers) = (BytesMut::new(), None);
    loop {
        let frame = match timeout(shared.limits.body_idle, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                return Err(CannotLookInside(format!(
                    "it answers a log-in and broke off: {error}"
                )));
            }
            Err(_) => {
                return Err(CannotLookInside(
                    "it answers a log-in and stands still".to_owned(),
                ));
            }
        };
        match frame.into_data() {
            Ok(piece) => coded.extend_from_slice(&piece),
            Err(end) => trailers = end.into_trailers().ok(),
        }
        if coded.len() > most {
            return Err(CannotLookInside(too_long(most)));
        }
    }
    let coded = coded.freeze();
    let plain = decoded(head, &coded, most)?;
    let body = Full::new(coded).map_err(|never: Infallible| match never {});
    let body = match trailers {
        Some(trailers) => {
            let end = std::future::ready(Some(Ok::<_, Fault>(trailers)));
            body.with_trailers(end).boxed_unsync()
        }
        None => body.boxed_unsync(),
    };
    Ok((plain, body))
}

fn too_long(most: usize) -> String {
    format!("it answers a log-in and is longer than {most} bytes")
}

fn decoded(head: &Parts, coded: &Bytes, most: usize) -> Result<Vec<u8>, CannotLookInside> {
    let codings = codings(&head.headers)?;
    if codings.is_empty() {
        return Ok(coded.to_vec());
    }
    let broken = |error: std::io::Error| CannotLookInside(format!("its content coding is broken: {error}"));
    let (mut decoder, mut plain, mut piece) = (Decoder::new(&codings), Vec::new(), vec![0; PIECE]);
    decoder.feed(coded);
    loop {
        let taken = decoder.take(&mut piece).map_err(broken)?;
        if taken == 0 {
            decoder.finish().map_err(broken)?;
            return Ok(plain);
        }
        plain.extend_from_slice(&piece[..taken]);
        if plain.len() > most {
            return Err(CannotLookInside(too_long(most)));
        }
    }
}
