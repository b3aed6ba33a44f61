//! The gateway's log-in upstream: TLS where it can be had and must be, and the real password in answer to what is asked.
use super::binding::end_point;
use super::entrance::Chosen;
use super::message::{StartUp, TLS_REQUEST, message, read_error};
use super::scram::{BOUND_MECHANISM, MECHANISM};
use super::stop::Stop;
use super::wire;
use crate::Shared;
use crate::secret::SessionSecrets;
use crate::secret::log_in::{Binding, Password, Role, Scram};
use crate::session::Session;
use crate::stream::Stream;
use crate::upstream::{Dialled, UpstreamFault};
use bytes::BytesMut;
use sallyport_policy::{Permit, classify};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The protocol's name in ALPN.
const ALPN: &[u8] = b"postgresql";
/// Notices before the log-in is through; more are no log-in.
const NOTICES: usize = 32;

/// A connection to the upstream, before its start-up message.
#[derive(Debug)]
pub(super) struct Reached {
    /// The bytes.
    pub(super) stream: Stream,
    /// Where it leads; none where the parent proxy looked the name up.
    pub(super) address: Option<SocketAddr>,
    /// Whether it is encrypted.
    pub(super) tls: bool,
    /// What binds a log-in to it (`tls-server-end-point`); none without TLS, or where the certificate has no such thing.
    pub(super) end_point: Option<Vec<u8>>,
}

/// Makes TLS on a connection that was just dialled, verified for the dialled name. Where the server declines, only a private
/// address, which a rule with `private: true` opened, is spoken to in plain.
pub(super) async fn reach(
    shared: &Shared,
    session: &Session,
    permit: &Permit,
    dialled: Dialled,
) -> Result<Reached, Stop> {
    let (mut line, address) = (dialled.stream, dialled.address);
    let limit = shared.limits.upstream_handshake;
    let asking = async {
        line.write_all(&TLS_REQUEST).await?;
        // One byte and no more: what a plain server says behind it is never taken for encrypted (CVE-2021-23222).
        line.read_u8().await
    };
    let word = tokio::time::timeout(limit, asking)
        .await
        .map_err(|_| {
            let place = permit.destination().to_string();
            Stop::Upstream(UpstreamFault::HandshakeTimeout(place, limit))
        })?
        .map_err(|error| closed(&error))?;
    match word {
        b'S' => {
            let stream = shared.upstream.encrypt(session, permit, line, ALPN).await;
            let stream = stream.map_err(Stop::Upstream)?;
            let certificates = stream.get_ref().1.peer_certificates();
            Ok(Reached {
                end_point: certificates.and_then(|chain| end_point(chain.first()?)),
                stream: Stream::new(stream),
                address,
                tls: true,
            })
        }
        b'N' if address.is_some_and(|address| classify(address.ip()).is_some()) => Ok(Reached {
            stream: Stream::new(line),
            address,
            tls: false,
            end_point: None,
        }),
        b'N' => Err(Stop::Plain),
        _ => Err(Stop::Broken(
            "the upstream does not answer as a PostgreSQL server".to_owned(),
        )),
    }
}

/// Logs in. Returns the name of the credential whose value was sent or proved, if one was asked for.
pub(super) async fn log_in(
    reached: &mut Reached,
    start_up: &StartUp,
    (chosen, role): (Option<Chosen>, Option<&Role>),
    secrets: &SessionSecrets,
) -> Result<Option<String>, Stop> {
    let (stream, end_point) = (&mut reached.stream, reached.end_point.as_deref());
    let written = start_up.written();
    match role {
        Some(role) => send(stream, &role.in_start_up(&written)).await?,
        None => send(stream, &written).await?,
    }
    let mut used = None;
    let mut chosen = chosen;
    for _ in 0..NOTICES {
        let (kind, body) = wire::read(stream).await.map_err(|error| closed(&error))?;
        let code = match kind {
            b'R' => authentication(&body)?,
            b'N' => continue,
            b'E' => return Err(Stop::Rejected(Box::new(read_error(&clean(secrets, body))), used)),
            kind => return Err(unexpected(kind)),
        };
        if let (0, _) = code {
            return Ok(used);
        }
        let Some(Chosen { name, password }) = chosen.take() else {
            return Err(match used {
                Some(_) => Stop::Broken("the upstream asks for a second log-in".to_owned()),
                None => Stop::Wants(
                    "the server wants a password, and no rule that allows this carries a credential for one",
                    "A rule's `use` names the credential, whose `in` has `password` and whose `hosts` have this host.",
                ),
            });
        };
        used = Some(name);
        match code {
            (3, _) if reached.tls => {
                password
                    .send_postgres_clear(stream)
                    .await
                    .map_err(|error| closed(&error))?;
            }
            (3, _) => {
                return Err(Stop::Wants(
                    "the server wants the password in clear on an unencrypted connection",
                    "Turn TLS on at the server, or `scram-sha-256`.",
                ));
            }
            (5, salt) => {
                let salt = salt.try_into().map_err(|_| unexpected(b'R'))?;
                let hash = password.postgres_md5(&start_up.user, role, salt);
                send(stream, &message(b'p', &[hash.as_bytes(), b"\0"].concat())).await?;
            }
            (10, mechanisms) => {
                let (mechanism, scram) = choose(mechanisms, end_point, &password)?;
                prove(stream, mechanism, scram, (secrets, &used)).await?;
            }
            _ => {
                return Err(Stop::Wants(
                    "the server wants a log-in of a kind that the gateway does not have",
                    "It has `scram-sha-256`, `md5`, and `password` over TLS.",
                ));
            }
        }
    }
    Err(Stop::Broken("the upstream does not end the log-in".to_owned()))
}

/// The mechanism that is taken of those that the server offers: the one that is bound to the connection, where both sides have it.
/// A server that offers none is told that one was to be had, so that nobody between can have taken the offer away
/// (RFC 5802 section 6).
fn choose(
    offered: &[u8],
    end_point: Option<&[u8]>,
    password: &Password,
) -> Result<(&'static str, Scram), Stop> {
    let offers = |mechanism: &str| {
        offered
            .split(|byte| *byte == 0)
            .any(|name| name == mechanism.as_bytes())
    };
    let (mechanism, binding) = match end_point {
        Some(hash) if offers(BOUND_MECHANISM) => (BOUND_MECHANISM, Binding::EndPoint(hash)),
        Some(_) if offers(MECHANISM) => (MECHANISM, Binding::NotOffered),
        None if offers(MECHANISM) => (MECHANISM, Binding::None),
        _ => {
            return Err(Stop::Wants(
                "the server offers no SASL mechanism that the gateway has",
                "It has SCRAM-SHA-256, and SCRAM-SHA-256-PLUS over TLS.",
            ));
        }
    };
    Ok((mechanism, password.scram(binding)))
}

/// SCRAM up to the server's proof that it knows the password too.
async fn prove(
    stream: &mut Stream,
    mechanism: &str,
    mut scram: Scram,
    (secrets, used): (&SessionSecrets, &Option<String>),
) -> Result<(), Stop> {
    let broken = |error: io::Error| Stop::Broken(format!("the upstream breaks SCRAM: {error}"));
    let first = scram.first();
    let length = (first.len() as u32).to_be_bytes();
    let initial = [mechanism.as_bytes(), b"\0", &length, &first].concat();
    send(stream, &message(b'p', &initial)).await?;
    let server_first = next(stream, 11, secrets, used).await?;
    let last = scram.answer(&server_first).map_err(broken)?;
    send(stream, &message(b'p', &last)).await?;
    let server_final = next(stream, 12, secrets, used).await?;
    scram.finish(&server_final).map_err(broken)
}

/// The data of the authentication message that is due.
async fn next(
    stream: &mut Stream,
    due: u32,
    secrets: &SessionSecrets,
    used: &Option<String>,
) -> Result<Vec<u8>, Stop> {
    match wire::read(stream).await.map_err(|error| closed(&error))? {
        (b'R', body) => match authentication(&body)? {
            (code, data) if code == due => Ok(data.to_vec()),
            _ => Err(unexpected(b'R')),
        },
        (b'E', body) => Err(Stop::Rejected(
            Box::new(read_error(&clean(secrets, body))),
            used.clone(),
        )),
        (kind, _) => Err(unexpected(kind)),
    }
}

fn authentication(body: &[u8]) -> Result<(u32, &[u8]), Stop> {
    let (code, data) = body.split_first_chunk::<4>().ok_or_else(|| unexpected(b'R'))?;
    Ok((u32::from_be_bytes(*code), data))
}

/// Takes values out of what the upstream says.
fn clean(secrets: &SessionSecrets, body: Vec<u8>) -> Vec<u8> {
    let Some(mut redactor) = secrets.redactor() else {
        return body;
    };
    let mut out = BytesMut::with_capacity(body.len());
    redactor.push(&body, &mut out);
    redactor.finish(&mut out);
    out.to_vec()
}

async fn send(stream: &mut Stream, bytes: &[u8]) -> Result<(), Stop> {
    wire::write(stream, bytes).await.map_err(|error| closed(&error))
}

fn unexpected(kind: u8) -> Stop {
    Stop::Broken(format!(
        "the upstream breaks the protocol: an unexpected message of kind {:?} in the log-in",
        char::from(kind)
    ))
}

fn closed(error: &io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Stop::Broken("the upstream closed the connection in the log-in".to_owned())
        }
        _ => Stop::Broken(format!("the connection to the upstream broke: {error}")),
    }
}
