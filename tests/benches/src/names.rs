//! A name server that leads every name to the origin on loopback.
use anyhow::Context;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::UdpSocket;

/// How long an answer may be kept, in seconds.
const TTL: u32 = 3600;

/// Answers until the socket fails.
pub(crate) async fn serve(socket: UdpSocket) -> anyhow::Result<()> {
    let mut buffer = [0; 1500];
    loop {
        let (count, peer) = socket.recv_from(&mut buffer).await?;
        if let Ok(query) = Message::from_vec(&buffer[..count]) {
            socket.send_to(&reply(&query)?, peer).await?;
        }
    }
}

fn reply(query: &Message) -> anyhow::Result<Vec<u8>> {
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.response_code = ResponseCode::NoError;
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    for question in &query.queries {
        if question.query_type() == RecordType::A {
            let address = RData::A(A(Ipv4Addr::LOCALHOST));
            reply.add_answer(Record::from_rdata(question.name().clone(), TTL, address));
        }
        reply.add_query(question.clone());
    }
    Ok(reply.to_vec()?)
}

/// The name that all connections to one place use.
pub(crate) const ONE: &str = "api.bench.test";

/// A name that nobody has used yet in this run.
pub(crate) fn distinct(round: u32, number: u64) -> String {
    format!("n{round}x{number}.bench.test")
}

/// Asks a name server for the address of a name.
pub(crate) async fn ask(server: SocketAddr, host: &str) -> anyhow::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(server).await?;
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(format!("{host}."))?, RecordType::A));
    socket.send(&query.to_vec()?).await?;
    let mut buffer = [0; 1500];
    let count = socket.recv(&mut buffer).await?;
    let reply = Message::from_vec(&buffer[..count])?;
    let found = reply.answers.iter().find_map(|record| match &record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    found.with_context(|| format!("`{host}` has no address"))
}
