//! DNS towards a machine over UDP and TCP: queries are answered beside each other, so that a slow one holds up none.
use super::answer::{self, Asked, ErrorCode, UDP_BYTES};
use super::lookup;
use super::synthetic::Table;
use crate::Shared;
use crate::metrics::path::Question;
use crate::session::Session;
use crate::stream::Stream;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Queries answered on one TCP connection.
const TCP_QUERIES: usize = 1000;

/// Answers queries until dropped.
pub async fn serve_udp(shared: Arc<Shared>, session: Arc<str>, names: Arc<Table>, socket: Arc<UdpSocket>) {
    let places = Arc::new(Semaphore::new(shared.limits.lookups));
    let mut buffer = vec![0; UDP_BYTES];
    loop {
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // An ICMP error for an earlier answer; the socket itself lives.
                tracing::debug!(%error, %session, "a DNS query could not be received");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some(session) = shared.sessions.by_id(&session) else {
            return;
        };
        let query = buffer[..length].to_vec();
        let Ok(place) = places.clone().try_acquire_owned() else {
            if let Some(reply) = too_many(&query) {
                shared.metrics.path().question(Question::Failed);
                send(&socket, &reply, peer).await;
            }
            continue;
        };
        let (shared, names, socket) = (shared.clone(), names.clone(), socket.clone());
        shared.tasks.clone().spawn(async move {
            if let Some(reply) = lookup::reply(&shared, &session, &names, &query).await {
                send(&socket, &reply, peer).await;
            }
            drop(place);
        });
    }
}

async fn send(socket: &UdpSocket, reply: &[u8], peer: SocketAddr) {
    if let Err(error) = socket.send_to(reply, peer).await {
        tracing::debug!(%error, "a DNS answer could not be sent");
    }
}

fn too_many(query: &[u8]) -> Option<Vec<u8>> {
    let (Asked::Question { mut reply, .. } | Asked::Done(mut reply)) = answer::read(query) else {
        return None;
    };
    answer::fail(&mut reply, ErrorCode::Other, "too many queries at a time");
    reply.to_vec().ok()
}

/// Answers queries on one TCP connection (RFC 7766).
pub async fn serve_tcp(shared: &Shared, session: &Session, names: &Table, mut stream: Stream) {
    for _ in 0..TCP_QUERIES {
        let Ok(Ok(query)) = timeout(shared.limits.first_bytes, read_query(&mut stream)).await else {
            return;
        };
        let Some(reply) = lookup::reply(shared, session, names, &query).await else {
            return;
        };
        let Ok(length) = u16::try_from(reply.len()) else {
            return;
        };
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend(reply);
        if let Err(error) = stream.write_all(&framed).await {
            tracing::debug!(%error, "a DNS answer could not be sent");
            return;
        }
    }
}

async fn read_query(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut query = vec![0; usize::from(length)];
    stream.read_exact(&mut query).await?;
    Ok(query)
}
