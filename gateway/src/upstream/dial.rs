//! Dialling: one look-up, every address judged, the judged address is the dialled one, straight or through the parent proxy.
use super::UpstreamFault;
use super::line::Line;
use super::parent::{Parent, ParentSpec};
use super::trust::{Trust, server_name};
use crate::limits::Limits;
use crate::names::resolve::{Known, Resolver};
use crate::names::synthetic::is_synthetic;
use crate::session::Session;
use crate::stream::Stream;
use arc_swap::ArcSwapOption;
use rustls::ClientConfig;
use sallyport_policy::{Destination, Host, Permit};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Addresses dialled for one connection, at most.
const ADDRESSES: usize = 8;
/// Addresses judged for one connection, at most.
const JUDGED: usize = 64;

/// A connection to a judged address, or to a name that the parent proxy looked up.
#[derive(Debug)]
pub struct Dialled {
    /// The socket.
    pub stream: Line,
    /// Where it leads; none where the parent proxy looked the name up.
    pub address: Option<SocketAddr>,
    /// Addresses that were passed over, and why; the proxy that it goes through.
    pub notes: Vec<String>,
}

/// Opens connections.
pub(super) struct Dialler {
    resolver: Resolver,
    parent: Option<Parent>,
    /// Towards the parent proxy itself, where TLS is spoken to it.
    parent_tls: ArcSwapOption<ClientConfig>,
    limits: Arc<Limits>,
    own: Vec<SocketAddr>,
}

impl std::fmt::Debug for Dialler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialler")
            .field("parent", &self.parent)
            .finish_non_exhaustive()
    }
}

impl Dialler {
    /// `own` are this gateway's listeners, never dialled.
    pub(super) fn new(
        (resolver, parent): (Resolver, Option<Parent>),
        trust: &Trust,
        own: Vec<SocketAddr>,
        limits: Arc<Limits>,
    ) -> Result<Self, UpstreamFault> {
        let dialler = Self {
            resolver,
            parent_tls: ArcSwapOption::empty(),
            parent,
            limits,
            own,
        };
        dialler.trust_anew(trust)?;
        Ok(dialler)
    }

    /// Checks the parent proxy with what is trusted now.
    pub(super) fn trust_anew(&self, trust: &Trust) -> Result<(), UpstreamFault> {
        if self.parent.as_ref().is_some_and(|parent| parent.spec().tls) {
            self.parent_tls.store(Some(trust.to_parent()?));
        }
        Ok(())
    }

    /// Connects to the destination of the permit.
    pub(super) async fn dial(&self, session: &Session, permit: &Permit) -> Result<Dialled, UpstreamFault> {
        let destination = permit.destination();
        if let Some(parent) = self.looked_up_there(session, &destination.host)? {
            let target = destination.to_string();
            return Ok(Dialled {
                stream: Line::Through(self.through(parent, &target).await?),
                address: None,
                notes: vec![format!(
                    "through the proxy `{}`, which looked the name up",
                    parent.label()
                )],
            });
        }
        let addresses = self
            .resolver
            .addresses(session, &destination.host)
            .await
            .map_err(|error| UpstreamFault::Name(error.0))?;
        self.first_of(addresses, permit, destination).await
    }

    /// Connects once more to an address, or once more by the name where the parent proxy looked it up.
    pub(super) async fn dial_again(
        &self,
        session: &Session,
        permit: &Permit,
        address: Option<SocketAddr>,
    ) -> Result<Dialled, UpstreamFault> {
        let Some(address) = address else {
            return self.dial(session, permit).await;
        };
        self.admit(permit, address).map_err(UpstreamFault::Address)?;
        let mut notes = Vec::new();
        let stream = self
            .reach(&permit.destination().host, address, &mut notes)
            .await?;
        Ok(Dialled {
            stream,
            address: Some(address),
            notes,
        })
    }

    /// The first address that is admitted and answers.
    async fn first_of(
        &self,
        addresses: Vec<IpAddr>,
        permit: &Permit,
        destination: &Destination,
    ) -> Result<Dialled, UpstreamFault> {
        let mut notes = Vec::new();
        let mut refused = None;
        let mut last = None;
        let mut dialled = 0;
        for address in addresses.into_iter().take(JUDGED) {
            let address = SocketAddr::new(address, destination.port);
            if let Err(why) = self.admit(permit, address) {
                if notes.len() < ADDRESSES {
                    notes.push(format!("address {} was passed over: {why}", address.ip()));
                }
                refused.get_or_insert(why);
                continue;
            }
            dialled += 1;
            if dialled > ADDRESSES {
                break;
            }
            match self.reach(&destination.host, address, &mut notes).await {
                Ok(stream) => {
                    return Ok(Dialled {
                        stream,
                        address: Some(address),
                        notes,
                    });
                }
                Err(fault) => last = Some(fault),
            }
        }
        match (last, refused) {
            (Some(fault), _) => Err(fault),
            (None, Some(why)) => Err(UpstreamFault::Address(why)),
            (None, None) => Err(UpstreamFault::Name("it has no address".to_owned())),
        }
    }

    /// What is known of a name. Where the parent proxy looks names up, each is taken to exist: nobody here could say.
    pub(super) async fn known(&self, name: &str) -> Known {
        let elsewhere = self
            .parent
            .as_ref()
            .is_some_and(|parent| parent.looks_up(name).unwrap_or(true));
        if elsewhere {
            return Known::Addresses { ttl: u32::MAX };
        }
        match timeout(self.limits.lookup, self.resolver.known(name)).await {
            Ok(known) => known,
            Err(_) => Known::Failed(format!("no answer within {:?}", self.limits.lookup)),
        }
    }

    /// Judges an address under a permit; the error is the sentence for the refusal.
    pub(super) fn admit(&self, permit: &Permit, address: SocketAddr) -> Result<(), String> {
        if is_synthetic(address.ip()) {
            return Err("it is one of the gateway's own synthetic addresses".to_owned());
        }
        if self.is_own(address) {
            return Err("it is the gateway's own listener: that would be a loop".to_owned());
        }
        permit.admits_address(address.ip())
    }

    /// The parent proxy, where it is the one to look this name up. What has a fixed address in the session is never left to it.
    fn looked_up_there(&self, session: &Session, host: &Host) -> Result<Option<&Parent>, UpstreamFault> {
        match (&self.parent, host) {
            (Some(parent), Host::Name(name)) if !session.hosts().contains_key(&**name) => {
                Ok(parent.looks_up(name)?.then_some(parent))
            }
            _ => Ok(None),
        }
    }

    async fn reach(
        &self,
        host: &Host,
        address: SocketAddr,
        notes: &mut Vec<String>,
    ) -> Result<Line, UpstreamFault> {
        match &self.parent {
            Some(parent) if parent.takes(host, address.ip()) => {
                let stream = self.through(parent, &address.to_string()).await?;
                notes.push(format!("through the proxy `{}`", parent.label()));
                Ok(Line::Through(stream))
            }
            _ => self.connect(address).await.map(Line::Direct),
        }
    }

    async fn through(&self, parent: &Parent, target: &str) -> Result<Stream, UpstreamFault> {
        let ParentSpec { host, port, .. } = parent.spec();
        let addresses = self
            .resolver
            .lookup(host)
            .await
            .map_err(|error| parent.fault(&error.0))?;
        let mut last = parent.fault("its name has no address");
        for address in addresses.into_iter().take(ADDRESSES) {
            let address = SocketAddr::new(address, *port);
            if self.is_own(address) {
                return Err(UpstreamFault::ParentLoop(parent.label()));
            }
            match self.connect(address).await {
                Ok(stream) => {
                    let stream = self.to_parent(parent, stream).await?;
                    return parent.tunnel(stream, target, &self.limits).await;
                }
                Err(fault) => last = parent.fault(&fault.to_string()),
            }
        }
        Err(last)
    }

    /// TLS to the proxy itself, where it is spoken.
    async fn to_parent(&self, parent: &Parent, stream: TcpStream) -> Result<Stream, UpstreamFault> {
        let Some(config) = self.parent_tls.load_full() else {
            return Ok(Stream::new(stream));
        };
        let connector = TlsConnector::from(config);
        let name = server_name(&parent.spec().host)?;
        match timeout(self.limits.upstream_handshake, connector.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Stream::new(stream)),
            Ok(Err(error)) => Err(parent.fault(&UpstreamFault::tls(&error).to_string())),
            Err(_) => Err(UpstreamFault::ParentTimeout(
                parent.label(),
                self.limits.upstream_handshake,
            )),
        }
    }

    async fn connect(&self, address: SocketAddr) -> Result<TcpStream, UpstreamFault> {
        let stream = timeout(self.limits.upstream_connect, TcpStream::connect(address))
            .await
            .map_err(|_| UpstreamFault::ConnectTimeout(address, self.limits.upstream_connect))?
            .map_err(|error| UpstreamFault::connect(address, &error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| UpstreamFault::connect(address, &error))?;
        Ok(stream)
    }

    fn is_own(&self, address: SocketAddr) -> bool {
        self.own.iter().any(|own| is_same_listener(*own, address))
    }
}

/// Whether dialling `target` reaches the listener `own`.
fn is_same_listener(own: SocketAddr, target: SocketAddr) -> bool {
    let to_itself = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    own.port() == target.port()
        && (own.ip() == target.ip()
            || (own.ip().is_unspecified() && to_itself(target.ip()))
            || (own.ip().is_loopback() && target.ip().is_unspecified()))
}
