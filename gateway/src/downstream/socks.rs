//! SOCKS 5 at the explicit proxy (RFC 1928): who asks by name and password (RFC 1929), CONNECT to names and addresses.
//!
//! A refused destination is accepted where its refusal can be read inside, as with CONNECT of HTTP: see `connection`.
pub mod wire;

use super::caller::{Caller, Owner};
use crate::Shared;
use crate::connection;
use crate::control::types::Verdict;
use crate::intake::Intake;
use crate::metrics::crowds::Crowd;
use crate::session::Session;
use crate::stream::Stream;
use sallyport_policy::Destination;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use wire::{Choice, Command, Fault, Greeting, Read, Reply};

/// Why a conversation ended before a connection came of it.
#[derive(Debug)]
enum End {
    /// The client closed, or the connection broke, before it had said anything wrong.
    Gone(io::Error),
    /// Refused, with what the client is told.
    Refused(Refused),
}

/// A refusal in the making.
#[derive(Debug)]
struct Refused {
    session: Option<Arc<Session>>,
    destination: Option<Destination>,
    verdict: Verdict,
    why: String,
    answer: Vec<u8>,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// A conversation that went wrong in a way that needs no answer.
fn malformed(why: String) -> End {
    End::Refused(Refused {
        session: None,
        destination: None,
        verdict: Verdict::Malformed,
        why,
        answer: Vec::new(),
    })
}

/// Speaks SOCKS on a connection whose first byte is 5, then serves what was asked for.
pub async fn serve(shared: Arc<Shared>, mut stream: Stream, caller: Caller) {
    match talk(&shared, &mut stream, &caller).await {
        Ok((session, destination)) => open(shared, stream, (session, destination), caller).await,
        Err(End::Gone(error)) => tracing::debug!(%error, "a SOCKS client left before its request"),
        Err(End::Refused(refused)) => refuse(&shared, &mut stream, refused, &caller).await,
    }
}

/// From the greeting to a request that can be served.
async fn talk(
    shared: &Shared,
    stream: &mut Stream,
    caller: &Caller,
) -> Result<(Arc<Session>, Destination), End> {
    let limit = shared.limits.first_bytes;
    let greeting = hear(stream, limit, wire::greeting)
        .await?
        .map_err(|fault| malformed(fault.to_string()))?;
    let session = identify(shared, stream, caller, greeting).await?;
    let faulty = |fault: Fault| {
        End::Refused(Refused {
            session: Some(session.clone()),
            destination: None,
            verdict: Verdict::Malformed,
            why: fault.to_string(),
            answer: fault.reply().bytes().to_vec(),
        })
    };
    let request = hear(stream, limit, wire::request).await?.map_err(faulty)?;
    if request.command != Command::Connect {
        let name = request.command.name();
        return Err(End::Refused(Refused {
            session: Some(session),
            destination: request.destination().ok(),
            verdict: Verdict::Denied,
            why: format!("{name} of SOCKS is not served; only CONNECT is"),
            answer: Reply::CommandUnsupported.bytes().to_vec(),
        }));
    }
    let destination = request.destination().map_err(faulty)?;
    Ok((session, destination))
}

/// Whose the connection is. The same answer whatever is wrong with name and password.
async fn identify(
    shared: &Shared,
    stream: &mut Stream,
    caller: &Caller,
    greeting: Greeting,
) -> Result<Arc<Session>, End> {
    let unknown = |answer: &[u8]| {
        End::Refused(Refused {
            session: None,
            destination: None,
            verdict: Verdict::Denied,
            why: "the proxy credentials are missing or unknown".to_owned(),
            answer: answer.to_vec(),
        })
    };
    if matches!(caller.owner, Owner::Listener(_)) && greeting.nothing {
        let session = caller.session(shared, None);
        let session = session.ok_or_else(|| unknown(&Choice::Unacceptable.bytes()))?;
        stream.write_all(&Choice::Nothing.bytes()).await?;
        return Ok(session);
    }
    if !greeting.password {
        return Err(unknown(&Choice::Unacceptable.bytes()));
    }
    stream.write_all(&Choice::Password.bytes()).await?;
    let said = hear(stream, shared.limits.first_bytes, wire::credentials)
        .await?
        .map_err(|_| unknown(&wire::checked(false)))?;
    let session = match (
        std::str::from_utf8(&said.name),
        std::str::from_utf8(&said.password),
    ) {
        (Ok(name), Ok(password)) => caller.session(shared, Some((name, password))),
        _ => None,
    };
    let session = session.ok_or_else(|| unknown(&wire::checked(false)))?;
    stream.write_all(&wire::checked(true)).await?;
    Ok(session)
}

/// Tells the client to go on, and takes the connection through its stages.
async fn open(
    shared: Arc<Shared>,
    mut stream: Stream,
    (session, destination): (Arc<Session>, Destination),
    caller: Caller,
) {
    let door = shared.doors.of(&session);
    let destination = door.meant(destination);
    let place = door.admit();
    let reply = match place {
        Some(_) => Reply::Succeeded,
        None => {
            let crowds = shared.metrics.path().crowds();
            crowds.refused(Crowd::Session, &session.id());
            Reply::NotAllowed
        }
    };
    if let Err(error) = stream.write_all(&reply.bytes()).await {
        tracing::debug!(%error, "a SOCKS client left before its connection was open");
        return;
    }
    if place.is_none() {
        return;
    }
    let intake = Intake {
        session,
        door,
        client: caller.client,
        destination,
        stream,
    };
    connection::serve(shared, intake).await;
}

async fn refuse(shared: &Shared, stream: &mut Stream, refused: Refused, caller: &Caller) {
    let mut ledger = shared.recorder.open(
        refused.session.as_deref(),
        refused.destination.as_ref(),
        "connect",
    );
    ledger.came_from(caller.client);
    ledger.verdict(refused.verdict, refused.why);
    let told = async {
        stream.write_all(&refused.answer).await?;
        stream.shutdown().await
    };
    if let Err(error) = told.await {
        tracing::debug!(%error, "a SOCKS client did not hear its refusal");
    }
    ledger.close("refused").await;
}

/// Reads one message, and takes it off the stream. What is no message comes back as its fault.
async fn hear<T>(
    stream: &mut Stream,
    limit: Duration,
    read: fn(&[u8]) -> Read<T>,
) -> Result<Result<T, Fault>, End> {
    let hearing = async {
        loop {
            match read(stream.seen()) {
                Ok(Some((message, length))) => {
                    stream.skip(length);
                    return Ok(Ok(message));
                }
                Ok(None) => {}
                Err(fault) => return Ok(Err(fault)),
            }
            if !stream.look_further().await? {
                return match stream.seen() {
                    [] => Err(End::Gone(io::ErrorKind::UnexpectedEof.into())),
                    _ => Err(malformed("the client left in the middle of SOCKS".to_owned())),
                };
            }
        }
    };
    match timeout(limit, hearing).await {
        Ok(heard) => heard,
        Err(_) => Err(malformed(format!(
            "a SOCKS message did not come to its end within {limit:?}"
        ))),
    }
}
