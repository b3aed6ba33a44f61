//! What an upstream's TLS alert means, in words that say what to do (RFC 8446 section 6).
use rustls::AlertDescription as Alert;
use std::error::Error as StdError;
use std::io;

/// How rustls begins the text of an alert that came; HTTP/2 hands on the text alone.
const RECEIVED: &str = "received fatal alert: ";

/// What an alert says.
pub(super) fn words(alert: Alert) -> String {
    let name = format!("{alert:?}");
    match alert {
        Alert::ProtocolVersion => "it speaks neither TLS 1.2 nor TLS 1.3".to_owned(),
        Alert::HandshakeFailure | Alert::InsufficientSecurity => format!(
            "it shares no cipher or key exchange with this gateway, or wants a client certificate (`{name}`)"
        ),
        Alert::CertificateRequired => {
            "it wants a client certificate; a credential for this host with `in: [client-certificate]`, \
             which a rule uses, gives it one"
                .to_owned()
        }
        Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => {
            format!("it does not take the client certificate, or misses one (`{name}`)")
        }
        Alert::UnrecognisedName => "it does not know this name".to_owned(),
        Alert::NoApplicationProtocol => "it speaks neither HTTP/2 nor HTTP/1.1".to_owned(),
        _ => name,
    }
}

/// The alert that an exchange ended with: TLS 1.3 tells of a missing client certificate only after the handshake.
pub(super) fn inside(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(this) = cause {
        let tls = this
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::AlertReceived(alert)) = tls {
            return Some(words(*alert));
        }
        if let Some((_, name)) = this.to_string().split_once(RECEIVED) {
            return Some(by_name(name.trim_end_matches([')', '"'])));
        }
        cause = this.source();
    }
    None
}

fn by_name(name: &str) -> String {
    // Every alert that a certificate may cause; others are told by their name.
    let known = [
        Alert::CertificateRequired,
        Alert::BadCertificate,
        Alert::UnsupportedCertificate,
        Alert::CertificateRevoked,
        Alert::CertificateExpired,
        Alert::CertificateUnknown,
        Alert::UnknownCA,
        Alert::AccessDenied,
        Alert::HandshakeFailure,
    ];
    known
        .into_iter()
        .find(|alert| format!("{alert:?}") == name)
        .map_or_else(|| name.to_owned(), words)
}
