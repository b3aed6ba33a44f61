//! What goes wrong on the way out, with the status and the RFC 9209 error that tell it to the client.
use super::alert;
use crate::control::types::Verdict;
use http::StatusCode;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why there is no answer from the upstream. Its fault unless said otherwise; a retry may help.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamFault {
    /// The name has no address, or the look-up failed.
    #[error("the name cannot be resolved: {0}")]
    Name(String),
    /// Every address is forbidden: a refusal, not a failure.
    #[error("{0}")]
    Address(String),
    /// The connection was refused.
    #[error("{0} refused the connection")]
    Refused(SocketAddr),
    /// No answer to the connection attempt.
    #[error("{0} did not accept a connection within {1:?}")]
    ConnectTimeout(SocketAddr, Duration),
    /// Another failure to connect.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(SocketAddr, String),
    /// The TLS handshake did not end.
    #[error("{0} did not finish the TLS handshake within {1:?}")]
    HandshakeTimeout(String, Duration),
    /// The certificate is not acceptable.
    #[error("the upstream's certificate is not acceptable: {0}")]
    Certificate(String),
    /// The upstream ended the handshake.
    #[error("the upstream ended the TLS handshake: {0}")]
    Alert(String),
    /// The operator's: the client certificate to show cannot be used.
    #[error("{0}")]
    Identity(String),
    /// gRPC needs what HTTP/1.1 has not.
    #[error("the upstream speaks HTTP/1.1 only, and gRPC needs HTTP/2 (it agreed to no `h2` by ALPN)")]
    NeedsHttp2,
    /// The handshake failed otherwise.
    #[error("the TLS handshake with the upstream failed: {0}")]
    Tls(String),
    /// Closed or reset before the answer's head was whole.
    #[error("the upstream closed the connection before it answered; it may have acted on the request")]
    Terminated,
    /// The answer breaks HTTP.
    #[error("the upstream's answer is malformed: {0}")]
    Malformed(String),
    /// No answer in time.
    #[error("the upstream did not answer within {0:?}; it may have acted on the request")]
    AnswerTimeout(Duration),
    /// The request's body broke off on the machine's side, or by the guard.
    #[error("the request's body broke off: {0}")]
    RequestBody(String),
    /// Our own: the request cannot be put into the upstream's form.
    #[error("the request cannot be sent on: {0}")]
    Request(String),
    /// The parent proxy cannot be reached or used.
    #[error("the proxy `{0}` on the gateway's way out cannot be used: {1}")]
    Parent(String, String),
    /// The parent proxy is silent.
    #[error("the proxy `{0}` on the gateway's way out did not answer within {1:?}")]
    ParentTimeout(String, Duration),
    /// The operator's: the log-in at the parent proxy is missing or wrong.
    #[error(
        "the proxy `{0}` on the gateway's way out lets nothing pass: {1}; the operator names the user in `--upstream-proxy` and the \
         password in `--upstream-proxy-secret`"
    )]
    ParentLogin(String, String),
    /// The parent proxy said no.
    #[error(
        "the proxy `{0}` on the gateway's way out opened no connection: it answered {1} {2}; who runs that proxy can say why"
    )]
    ParentRefused(String, u16, String),
    /// The operator's: the parent proxy is this gateway.
    #[error("the proxy `{0}` on the gateway's way out is this gateway itself: that would be a loop")]
    ParentLoop(String),
    /// The operator's: authorities or TLS settings that cannot be used.
    #[error("the upstream authorities cannot be used: {0}")]
    Roots(String),
}

impl UpstreamFault {
    /// As a record's verdict: an address that may not be dialled is a refusal of ours, all else the upstream's failure.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Address(_) => Verdict::Denied,
            _ => Verdict::UpstreamFailed,
        }
    }

    /// Sorts a failure to connect.
    pub(super) fn connect(address: SocketAddr, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused(address),
            _ => Self::Unreachable(address, error.to_string()),
        }
    }

    /// Sorts a failed handshake.
    pub(super) fn tls(error: &io::Error) -> Self {
        match error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            Some(rustls::Error::InvalidCertificate(why)) => Self::Certificate(certificate_text(why)),
            Some(rustls::Error::AlertReceived(alert)) => Self::Alert(alert::words(*alert)),
            Some(other) => Self::Tls(other.to_string()),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::Alert("it closed the connection".to_owned())
            }
            None => Self::Tls(error.to_string()),
        }
    }

    /// Sorts a failed exchange.
    pub(super) fn http(error: &hyper::Error) -> Self {
        if error.is_user() || error.is_body_write_aborted() {
            return Self::RequestBody(innermost(error));
        }
        if let Some(words) = alert::inside(error) {
            return Self::Alert(words);
        }
        if error.is_parse() {
            return Self::Malformed(error.to_string());
        }
        if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            return Self::Terminated;
        }
        match error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>())
        {
            Some(_) => Self::Terminated,
            None => Self::Malformed(innermost(error)),
        }
    }

    /// Whether the connection was dead rather than the exchange wrong.
    pub(super) fn is_stale_connection(&self) -> bool {
        matches!(self, Self::Terminated)
    }

    /// Status for the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Address(_) => StatusCode::FORBIDDEN,
            Self::ConnectTimeout(..)
            | Self::HandshakeTimeout(..)
            | Self::ParentTimeout(..)
            | Self::AnswerTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::Request(_) | Self::Roots(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// Error type of RFC 9209 section 2.3.
    pub fn error(&self) -> &'static str {
        match self {
            Self::Name(_) => "dns_error",
            Self::Address(_) => "destination_ip_prohibited",
            Self::Refused(_) => "connection_refused",
            Self::ConnectTimeout(..) | Self::HandshakeTimeout(..) => "connection_timeout",
            Self::Unreachable(..) => "destination_ip_unroutable",
            Self::Certificate(_) => "tls_certificate_error",
            Self::Alert(_) => "tls_alert_received",
            Self::Tls(_) => "tls_protocol_error",
            Self::Terminated => "connection_terminated",
            Self::Malformed(_) | Self::NeedsHttp2 => "http_protocol_error",
            Self::AnswerTimeout(_) => "http_response_timeout",
            Self::RequestBody(_) => "http_request_error",
            Self::Request(_) => "proxy_internal_error",
            Self::Roots(_) | Self::Identity(_) | Self::ParentLogin(..) => "proxy_configuration_error",
            Self::Parent(..) | Self::ParentTimeout(..) => "proxy_internal_error",
            Self::ParentRefused(..) => "proxy_internal_response",
            Self::ParentLoop(_) => "proxy_loop_detected",
        }
    }
}

fn certificate_text(why: &rustls::CertificateError) -> String {
    use rustls::CertificateError as E;
    match why {
        E::UnknownIssuer => "its issuer is not trusted".to_owned(),
        E::Expired | E::ExpiredContext { .. } => "it has expired".to_owned(),
        E::NotValidYet | E::NotValidYetContext { .. } => "it is not valid yet".to_owned(),
        E::NotValidForName | E::NotValidForNameContext { .. } => "it is for another name".to_owned(),
        E::Other(other) => other.0.to_string(),
        other => other.to_string(),
    }
}

/// The text of the last cause, which names what happened.
fn innermost(error: &dyn StdError) -> String {
    let mut last: &dyn StdError = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
