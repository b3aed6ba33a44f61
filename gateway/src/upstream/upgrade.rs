//! Requests that want to speak on another protocol: as extended CONNECT over HTTP/2 where the upstream takes that, else by
//! `Upgrade` over HTTP/1.1, on a connection of their own that nothing is pooled from.
//!
//! As browsers do, a kept HTTP/2 connection is used if it can be, and else HTTP/1.1 is asked for, which most upstreams speak:
//! whether HTTP/2 will do is known only when TLS is made and the upstream's settings are there.
use super::address::address_request;
use super::dial::Dialled;
use super::pool::{Connection, Streams};
use super::speak::{first_byte, http1, http2};
use super::{Answered, Line, Route, Upstream, UpstreamFault, identity, key, trust};
use crate::payload::empty_body;
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, TE, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use rustls::{AlertDescription, ClientConfig, Error as TlsError};
use std::io;
use std::sync::Arc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

impl Upstream {
    /// Sends a request without a body that asks for `protocol` (RFC 8441 section 4, RFC 9110 section 7.8). Where the answer
    /// is `200` over HTTP/2 or `101 Switching Protocols`, what follows it can be had by `hyper::upgrade::on`.
    pub async fn upgrade(
        &self,
        route: Route<'_>,
        parts: Parts,
        protocol: &'static str,
    ) -> Result<Answered, UpstreamFault> {
        let mut notes = Vec::new();
        let identity = identity(route)?;
        let base = self.trust.now();
        let key = key(&base, route, identity.as_deref());
        let kept = self
            .pool
            .shared(&key, |address| self.still_admitted(route, address));
        if let Some(streams) = kept.filter(|kept| *kept.extended.borrow() == Some(true)) {
            match self.extended(streams, route, parts.clone(), protocol).await {
                Ok(response) => return Ok(Answered { response, notes }),
                Err(fault) if fault.is_stale_connection() => {
                    notes.push("repeated: the kept connection had been closed".to_owned());
                }
                Err(fault) => return Err(fault),
            }
        }
        let dialled = self.dial(route.session, route.permit).await?;
        let Dialled { stream, address, .. } = dialled;
        notes.extend(dialled.notes);
        let connection = match route.tls {
            false => http1(stream, address, self.counters.upstream_open()).await?,
            true => {
                let connector = self.trust.connector(&base, route.session, identity.as_deref())?;
                match self.encrypted(route, http1_only(&connector), stream).await? {
                    Ok(stream) => http1(stream, address, self.counters.upstream_open()).await?,
                    Err(error) if is_http2_alone(&error) => {
                        let opened = self.http2_alone(route, connector, (protocol, &mut notes)).await?;
                        let response = self.extended(opened, route, parts, protocol).await?;
                        return Ok(Answered { response, notes });
                    }
                    Err(error) => return Err(UpstreamFault::tls(&error)),
                }
            }
        };
        let Connection::Http1 { mut sender, .. } = connection else {
            return Err(UpstreamFault::Request("it is no HTTP/1.1".to_owned()));
        };
        let mut parts = addressed(parts, route, false)?;
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

    /// By extended CONNECT, which in HTTP/2 is what a GET with `Upgrade` is in HTTP/1.1.
    async fn extended(
        &self,
        mut streams: Streams,
        route: Route<'_>,
        parts: Parts,
        protocol: &'static str,
    ) -> Result<Response<Incoming>, UpstreamFault> {
        let mut parts = addressed(parts, route, true)?;
        parts.method = Method::CONNECT;
        parts.extensions.insert(Protocol::from_static(protocol));
        // The stream itself shows that the other side understood (RFC 8441 section 5).
        parts.headers.remove(SEC_WEBSOCKET_KEY);
        let sending = streams
            .sender
            .try_send_request(Request::from_parts(parts, empty_body()));
        first_byte(self.limits.upstream_first_byte, route.traffic, sending)
            .await
            .map_err(|unsent| unsent.fault)
    }

    /// A connection to an upstream that speaks HTTP/2 alone, if it takes extended CONNECT.
    async fn http2_alone(
        &self,
        route: Route<'_>,
        connector: TlsConnector,
        (protocol, notes): (&str, &mut Vec<String>),
    ) -> Result<Streams, UpstreamFault> {
        let dialled = self.dial(route.session, route.permit).await?;
        notes.extend(dialled.notes);
        let stream = self.encrypted(route, connector, dialled.stream).await?;
        let stream = stream.map_err(|error| UpstreamFault::tls(&error))?;
        let connection = http2(stream, dialled.address, self.counters.upstream_open()).await?;
        let Connection::Http2 { mut streams, .. } = connection else {
            return Err(UpstreamFault::Request("it is no HTTP/2".to_owned()));
        };
        let limit = self.limits.upstream_handshake;
        let told = timeout(limit, streams.extended.wait_for(Option::is_some)).await;
        let told = told
            .map_err(|_| UpstreamFault::HandshakeTimeout(route.permit.destination().to_string(), limit))?
            .map_err(|_| UpstreamFault::Terminated)?
            .is_some_and(|takes| takes);
        match told {
            true => Ok(streams),
            false => Err(UpstreamFault::Alert(format!(
                "it does not speak HTTP/1.1, over which {protocol} is asked for, and its HTTP/2 takes no extended CONNECT (RFC 8441)"
            ))),
        }
    }

    /// TLS on a dialled connection; within, how it failed.
    async fn encrypted(
        &self,
        route: Route<'_>,
        connector: TlsConnector,
        line: Line,
    ) -> Result<io::Result<TlsStream<Line>>, UpstreamFault> {
        let destination = route.permit.destination();
        let name = trust::server_name(&destination.host)?;
        let limit = self.limits.upstream_handshake;
        self.in_turn(route.session, timeout(limit, connector.connect(name, line)))
            .await
            .map_err(|_| UpstreamFault::HandshakeTimeout(destination.to_string(), limit))
    }
}

fn addressed(mut parts: Parts, route: Route<'_>, http2: bool) -> Result<Parts, UpstreamFault> {
    address_request(&mut parts, route.permit.destination(), route.tls, http2)
        .map_err(|error| UpstreamFault::Request(error.to_string()))?;
    parts.headers.remove(TE);
    Ok(parts)
}

/// The session's connector, but for what it offers.
fn http1_only(connector: &TlsConnector) -> TlsConnector {
    let mut config = ClientConfig::clone(connector.config());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

fn is_http2_alone(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    matches!(
        inner,
        Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol))
    )
}
