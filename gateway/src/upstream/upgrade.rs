//! Requests that want to speak on another protocol: over HTTP/1.1, on a connection of their own that nothing is pooled from.
use super::address::address_request;
use super::pool::Connection;
use super::speak::{first_byte, http1};
use super::{Answered, Route, Upstream, UpstreamFault, identity, trust};
use crate::payload::empty_body;
use http::header::{CONNECTION, TE, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request};
use rustls::{AlertDescription, ClientConfig, Error as TlsError};
use std::io;
use std::sync::Arc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

impl Upstream {
    /// Sends a request without a body that asks for `protocol` (RFC 9110 section 7.8). Where the answer is
    /// `101 Switching Protocols`, what follows it can be had by `hyper::upgrade::on`.
    pub async fn upgrade(
        &self,
        route: Route<'_>,
        mut parts: Parts,
        protocol: &'static str,
    ) -> Result<Answered, UpstreamFault> {
        let dialled = self.dial(route.session, route.permit).await?;
        let (address, notes) = (dialled.address, dialled.notes);
        let connection = match route.tls {
            false => http1(dialled.stream, address, self.counters.upstream_open()).await?,
            true => {
                let name = trust::server_name(&route.permit.destination().host)?;
                let handshake = self.http1_only(route)?.connect(name, dialled.stream);
                let handshake = timeout(self.limits.upstream_handshake, handshake);
                let stream = self
                    .in_turn(route.session, handshake)
                    .await
                    .map_err(|_| {
                        let place = route.permit.destination().to_string();
                        UpstreamFault::HandshakeTimeout(place, self.limits.upstream_handshake)
                    })?
                    .map_err(|error| fault(&error, protocol))?;
                http1(stream, address, self.counters.upstream_open()).await?
            }
        };
        let Connection::Http1 { mut sender, .. } = connection else {
            return Err(UpstreamFault::Request("it is no HTTP/1.1".to_owned()));
        };
        address_request(&mut parts, route.permit.destination(), route.tls, false)
            .map_err(|error| UpstreamFault::Request(error.to_string()))?;
        parts.headers.remove(TE);
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, HeaderValue::from_static(protocol));
        let sending = sender.try_send_request(Request::from_parts(parts, empty_body()));
        let response = first_byte(self.limits.upstream_first_byte, route.traffic, sending)
            .await
            .map_err(|unsent| unsent.fault)?;
        Ok(Answered { response, notes })
    }

    /// The session's connector, which offers HTTP/1.1 alone: what HTTP/2 has instead of upgrades, few upstreams speak.
    fn http1_only(&self, route: Route<'_>) -> Result<TlsConnector, UpstreamFault> {
        let identity = identity(route)?;
        let connector = self
            .trust
            .connector(&self.trust.now(), route.session, identity.as_deref())?;
        let mut config = ClientConfig::clone(connector.config());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn fault(error: &io::Error, protocol: &str) -> UpstreamFault {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match inner {
        Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol)) => UpstreamFault::Alert(
            format!("it does not speak HTTP/1.1, over which {protocol} is asked for"),
        ),
        _ => UpstreamFault::tls(error),
    }
}
