//! A name server on loopback that answers as it is told and notes what it was asked.
use crate::origin::Roots;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use sallyport_gateway::names::resolve::Resolver;
use sallyport_gateway::names::server::NameServer;
use sallyport_gateway::upstream::trusting;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// A running name server, gone when dropped.
pub(crate) struct Dns {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<IpAddr>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Dns {
    /// A server that has these addresses for every name, behind an alias where one is given, or a chain of them
    /// with spaces between. It knows no name that begins with
    /// `nx`, has no address for one that begins with `none`, and is silent about those that begin with `silent`.
    pub(crate) async fn new(answers: &[&str], alias: Option<&'static str>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(read(answers)));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noting, having) = (asked.clone(), answers.clone());
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((count, peer)) = socket.recv_from(&mut buffer).await {
                let query = Message::from_vec(&buffer[..count]).unwrap();
                let question = &query.queries[0];
                noting
                    .lock()
                    .unwrap()
                    .push(format!("{} {}", question.name(), question.query_type()));
                if question.name().to_ascii().starts_with("silent") {
                    continue;
                }
                let reply = reply(&query, &having.lock().unwrap().clone(), alias);
                socket.send_to(&reply, peer).await.unwrap();
            }
        });
        Self {
            address,
            asked,
            answers,
            task,
        }
    }

    /// The same server over TLS (RFC 7858), with a certificate of `roots` for `dns.test`, as it is asked by those who trust
    /// `trusted`; written as an operator does, with the name that it must have.
    pub(crate) async fn over_tls(&self, roots: &Roots, trusted: &Roots, name: &str) -> Resolver {
        let acceptor = roots.acceptor(&["dns.test"], &[]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plain = self.address;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust the certificate leaves.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                tokio::spawn(async move {
                    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    socket.connect(plain).await.unwrap();
                    while let Ok(length) = stream.read_u16().await {
                        let mut query = vec![0; usize::from(length)];
                        stream.read_exact(&mut query).await.unwrap();
                        socket.send(&query).await.unwrap();
                        let mut answer = [0; 1500];
                        let length = socket.recv(&mut answer).await.unwrap();
                        stream.write_u16(u16::try_from(length).unwrap()).await.unwrap();
                        stream.write_all(&answer[..length]).await.unwrap();
                    }
                });
            }
        });
        let server = NameServer::read(&format!("tls://127.0.0.1:{port}#{name}")).unwrap();
        let trust = trusting(trusted.pem().as_bytes()).unwrap();
        Resolver::new(&[server], Some(trust)).unwrap()
    }

    /// Other addresses from now on.
    pub(crate) fn answer(&self, answers: &[&str]) {
        *self.answers.lock().unwrap() = read(answers);
    }

    pub(crate) fn resolver(&self) -> Resolver {
        Resolver::new(&[NameServer::plain(self.address)], None).unwrap()
    }

    /// Names and types, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(answers: &[&str]) -> Vec<IpAddr> {
    answers.iter().map(|text| text.parse().unwrap()).collect()
}

fn reply(query: &Message, answers: &[IpAddr], alias: Option<&str>) -> Vec<u8> {
    let question = query.queries[0].clone();
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.response_code = ResponseCode::NoError;
    reply.metadata.recursion_available = true;
    let mut owner = question.name().clone();
    for alias in alias.into_iter().flat_map(str::split_whitespace) {
        let target = Name::from_ascii(alias).unwrap();
        reply.add_answer(Record::from_rdata(owner, 0, RData::CNAME(CNAME(target.clone()))));
        owner = target;
    }
    for address in answers {
        let data = match (address, question.query_type()) {
            (IpAddr::V4(four), RecordType::A) => RData::A(A(*four)),
            (IpAddr::V6(six), RecordType::AAAA) => RData::AAAA(AAAA(*six)),
            _ => continue,
        };
        reply.add_answer(Record::from_rdata(owner.clone(), 0, data));
    }
    let asked = question.name().to_ascii();
    if asked.starts_with("nx") || asked.starts_with("none") {
        reply.answers.clear();
        if asked.starts_with("nx") {
            reply.metadata.response_code = ResponseCode::NXDomain;
        }
        let soa = SOA::new(Name::root(), Name::root(), 1, 60, 60, 60, 60);
        reply.add_authority(Record::from_rdata(
            question.name().base_name(),
            60,
            RData::SOA(soa),
        ));
    }
    reply.add_query(question);
    reply.to_vec().unwrap()
}
