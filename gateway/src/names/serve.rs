//! DNS towards a machine: every name gets a synthetic address, nothing is asked of anybody.
use super::synthetic::{Full, Table};
use crate::Shared;
use crate::control::types::Verdict;
use crate::session::Session;
use crate::stream::Stream;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use sallyport_policy::Host;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Seconds for which an answer may be kept: short, since a restarted gateway learns names anew.
const TTL: u32 = 10;
/// Largest query and answer over UDP (RFC 6891; answers here are far smaller).
const UDP_BYTES: usize = 4096;
/// Queries answered on one TCP connection.
const TCP_QUERIES: usize = 1000;

/// Answers queries until dropped.
pub async fn serve_udp(shared: Arc<Shared>, session: Arc<str>, names: Arc<Table>, socket: UdpSocket) {
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
        let Some(reply) = reply(&shared, &session, &names, &buffer[..length]).await else {
            continue;
        };
        if let Err(error) = socket.send_to(&reply, peer).await {
            tracing::debug!(%error, session = session.id(), "a DNS answer could not be sent");
        }
    }
}

/// Answers queries on one TCP connection (RFC 7766).
pub async fn serve_tcp(shared: &Shared, session: Arc<Session>, names: Arc<Table>, mut stream: Stream) {
    for _ in 0..TCP_QUERIES {
        let Ok(Ok(query)) = timeout(shared.limits.first_bytes, read_query(&mut stream)).await else {
            return;
        };
        let Some(reply) = reply(shared, &session, &names, &query).await else {
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

async fn reply(shared: &Shared, session: &Session, names: &Table, query: &[u8]) -> Option<Vec<u8>> {
    let (message, full) = answer(names, query)?;
    if let Some(Full(limit)) = full
        && names.first_overflow()
    {
        let mut ledger = shared.recorder.open(Some(session), None, "dns");
        ledger.verdict(Verdict::Denied, Full(limit).to_string());
        ledger.close("refused").await;
    }
    match message.to_vec() {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            tracing::warn!(%error, "a DNS answer could not be written");
            None
        }
    }
}

/// The answer to one query; none for what is itself an answer or too short to have an id. Pure but for the table.
fn answer(names: &Table, query: &[u8]) -> Option<(Message, Option<Full>)> {
    let message = match Message::from_vec(query) {
        Ok(message) if message.metadata.message_type == MessageType::Response => return None,
        Ok(message) => message,
        Err(_) => {
            let id = u16::from_be_bytes([*query.first()?, *query.get(1)?]);
            // The bit that marks an answer: never answer answers.
            if query.get(2).is_some_and(|flags| flags & 0x80 != 0) {
                return None;
            }
            return Some((Message::error_msg(id, OpCode::Query, ResponseCode::FormErr), None));
        }
    };
    let mut reply = Message::response(message.metadata.id, message.metadata.op_code);
    reply.metadata = Metadata::response_from_request(&message.metadata);
    reply.metadata.recursion_available = true;
    if let Some(asked) = &message.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES as u16);
        edns.set_version(0);
        edns.set_dnssec_ok(asked.flags().dnssec_ok);
        reply.edns = Some(edns);
    }
    if message.metadata.op_code != OpCode::Query {
        reply.metadata.response_code = ResponseCode::NotImp;
        return Some((reply, None));
    }
    let [question] = message.queries.as_slice() else {
        reply.metadata.response_code = ResponseCode::FormErr;
        return Some((reply, None));
    };
    reply.add_query(question.clone());
    let full = fill(names, question, &mut reply).err();
    if full.is_some() {
        reply.metadata.response_code = ResponseCode::ServFail;
    }
    Some((reply, full))
}

fn fill(names: &Table, question: &Query, reply: &mut Message) -> Result<(), Full> {
    let owner = question.name().clone();
    if question.query_class() != DNSClass::IN {
        reply.metadata.response_code = ResponseCode::Refused;
        return Ok(());
    }
    match question.query_type() {
        RecordType::A | RecordType::AAAA => match addresses(names, &owner)? {
            Some((four, _)) if question.query_type() == RecordType::A => {
                reply.add_answer(Record::from_rdata(owner, TTL, RData::A(A(four))));
            }
            Some((_, six)) => {
                reply.add_answer(Record::from_rdata(owner, TTL, RData::AAAA(AAAA(six))));
            }
            None => {
                reply.metadata.response_code = ResponseCode::NXDomain;
                reply.add_authority(authority(&owner));
            }
        },
        RecordType::PTR => match pointer(names, &owner) {
            Some(name) => {
                reply.add_answer(Record::from_rdata(owner, TTL, RData::PTR(PTR(name))));
            }
            None => {
                reply.metadata.response_code = ResponseCode::NXDomain;
                reply.add_authority(authority(&owner));
            }
        },
        // No data of this type (RFC 2308 section 2.2); HTTPS and SVCB among them: no hints, no ECH, no h3.
        _ => {
            reply.add_authority(authority(&owner));
        }
    }
    Ok(())
}

/// The addresses for a name; none for what can be no host. Refused names have addresses too, so that their refusal can
/// be read.
fn addresses(names: &Table, owner: &Name) -> Result<Option<(Ipv4Addr, Ipv6Addr)>, Full> {
    let text = owner.to_ascii();
    match Host::parse(text.strip_suffix('.').unwrap_or(&text)) {
        // RFC 6761 section 6.3.
        Ok(Host::Name(name)) if &*name == "localhost" || name.ends_with(".localhost") => {
            Ok(Some((Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)))
        }
        Ok(Host::Name(name)) => names.addresses(&name).map(Some),
        Ok(Host::Address(_)) | Err(_) => Ok(None),
    }
}

fn pointer(names: &Table, owner: &Name) -> Option<Name> {
    let network = owner.parse_arpa_name().ok()?;
    if network.prefix_len() != network.max_prefix_len() {
        return None;
    }
    let name = names.name(network.addr())?;
    Name::from_ascii(format!("{name}.")).ok()
}

/// The SOA that lets a resolver keep a negative answer, for the same short time.
fn authority(owner: &Name) -> Record {
    let seconds = TTL.cast_signed();
    let soa = SOA::new(Name::root(), Name::root(), 1, seconds, seconds, seconds, TTL);
    Record::from_rdata(owner.base_name(), TTL, RData::SOA(soa))
}

#[cfg(test)]
mod tests;
