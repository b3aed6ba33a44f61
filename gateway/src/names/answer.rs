//! DNS messages: a query read, an answer made. Pure but for the table of synthetic addresses.
use super::known::Known;
use super::synthetic::{Full, Table};
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, AAAA, PTR, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use sallyport_policy::Host;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Seconds for which an answer may be kept, at most: short, since a name that is allowed or refused now may not be later.
pub const TTL: u32 = 10;
/// Largest query and answer over UDP (RFC 6891; answers here are far smaller).
pub const UDP_BYTES: usize = 4096;
/// Longest text of an extended error, so that the answer fits into one packet anywhere.
const EXTRA_TEXT: usize = 300;
/// EDNS option of RFC 8914.
const EXTENDED_ERROR: u16 = 15;

/// Info codes of RFC 8914 section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// Other.
    Other = 0,
    /// The operator's policy forbids the name.
    Blocked = 15,
    /// The client's side filters this.
    Filtered = 17,
    /// No server answered.
    NoReachableAuthority = 22,
}

/// A query, as far as it could be read.
#[derive(Debug)]
pub enum Asked {
    /// Nothing is answered: it is itself an answer, or too short to have an id.
    Nothing,
    /// The answer needs no name.
    Done(Message),
    /// A question about a name.
    Question {
        /// The answer so far.
        reply: Message,
        /// The question.
        question: Query,
        /// The name whose addresses are asked for, where it can be a host's. `localhost` is answered without it.
        host: Option<Arc<str>>,
    },
}

/// Reads one query.
pub fn read(query: &[u8]) -> Asked {
    let message = match Message::from_vec(query) {
        Ok(message) if message.metadata.message_type == MessageType::Response => return Asked::Nothing,
        Ok(message) => message,
        Err(_) => return unreadable(query),
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
        return Asked::Done(reply);
    }
    let [question] = message.queries.as_slice() else {
        reply.metadata.response_code = ResponseCode::FormErr;
        return Asked::Done(reply);
    };
    reply.add_query(question.clone());
    if question.query_class() != DNSClass::IN {
        reply.metadata.response_code = ResponseCode::Refused;
        return Asked::Done(reply);
    }
    let addresses = matches!(question.query_type(), RecordType::A | RecordType::AAAA);
    let host = addresses.then(|| host(question.name())).flatten();
    Asked::Question {
        reply,
        question: question.clone(),
        host,
    }
}

/// A format error, where there is an id to answer to.
fn unreadable(query: &[u8]) -> Asked {
    match query {
        // The bit that marks an answer: never answer answers.
        [_, _, flags, ..] if flags & 0x80 != 0 => Asked::Nothing,
        [high, low, ..] => {
            let id = u16::from_be_bytes([*high, *low]);
            Asked::Done(Message::error_msg(id, OpCode::Query, ResponseCode::FormErr))
        }
        _ => Asked::Nothing,
    }
}

/// The canonical name that addresses are asked for.
fn host(owner: &Name) -> Option<Arc<str>> {
    match parse(owner)? {
        Host::Name(name) if !is_localhost(&name) => Some(name),
        _ => None,
    }
}

fn parse(owner: &Name) -> Option<Host> {
    let text = owner.to_ascii();
    Host::parse(text.strip_suffix('.').unwrap_or(&text)).ok()
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Answers a question about addresses of a name of which this is known. Both families are there where one is: the gateway
/// dials whichever the name has.
pub fn addresses(
    names: &Table,
    name: &str,
    known: &Known,
    question: &Query,
    reply: &mut Message,
) -> Result<(), Full> {
    match known {
        Known::Addresses { ttl } => {
            let (four, six) = names.addresses(name)?;
            put(reply, question, (four, six), (*ttl).min(TTL));
        }
        Known::Nothing => nothing(reply, question.name(), ResponseCode::NoError),
        Known::NoSuchName => nothing(reply, question.name(), ResponseCode::NXDomain),
        Known::Failed(why) => fail(reply, ErrorCode::NoReachableAuthority, why),
    }
    Ok(())
}

/// Answers every other question.
pub fn other(names: &Table, question: &Query, reply: &mut Message) {
    let owner = question.name();
    match question.query_type() {
        RecordType::A | RecordType::AAAA => match parse(owner) {
            // RFC 6761 section 6.3.
            Some(Host::Name(_)) => put(reply, question, (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST), TTL),
            _ => nothing(reply, owner, ResponseCode::NXDomain),
        },
        RecordType::PTR => match pointer(names, owner) {
            Some(name) => {
                reply.add_answer(Record::from_rdata(owner.clone(), TTL, RData::PTR(PTR(name))));
            }
            None => nothing(reply, owner, ResponseCode::NXDomain),
        },
        // No data of this type (RFC 2308 section 2.2).
        kind => {
            nothing(reply, owner, ResponseCode::NoError);
            if matches!(kind, RecordType::HTTPS | RecordType::SVCB) {
                explain(
                    reply,
                    ErrorCode::Filtered,
                    "no ECH and no HTTP/3 through this gateway",
                );
            }
        }
    }
}

fn put(reply: &mut Message, question: &Query, (four, six): (Ipv4Addr, Ipv6Addr), ttl: u32) {
    let data = match question.query_type() {
        RecordType::A => RData::A(A(four)),
        _ => RData::AAAA(AAAA(six)),
    };
    reply.add_answer(Record::from_rdata(question.name().clone(), ttl, data));
}

fn nothing(reply: &mut Message, owner: &Name, code: ResponseCode) {
    reply.metadata.response_code = code;
    reply.add_authority(authority(owner));
}

/// SERVFAIL, with the reason.
pub fn fail(reply: &mut Message, code: ErrorCode, text: &str) {
    reply.metadata.response_code = ResponseCode::ServFail;
    explain(reply, code, text);
}

/// Adds an extended error (RFC 8914), where the query has EDNS.
pub fn explain(reply: &mut Message, code: ErrorCode, text: &str) {
    let Some(edns) = &mut reply.edns else { return };
    let mut data = (code as u16).to_be_bytes().to_vec();
    let mut end = text.len().min(EXTRA_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    data.extend_from_slice(&text.as_bytes()[..end]);
    edns.options_mut()
        .insert(EdnsOption::Unknown(EXTENDED_ERROR, data));
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
