//! A request's head in the form of the upstream's HTTP version, addressed to the decided destination. Pure.
use http::header::{CONNECTION, HOST, TE};
use http::request::Parts;
use http::uri::{Authority, Scheme, Uri};
use http::{HeaderValue, Version};
use sallyport_policy::Destination;

/// Addresses a request to the destination in the way of the upstream's HTTP version.
pub(super) fn address_request(
    parts: &mut Parts,
    destination: &Destination,
    tls: bool,
    http2: bool,
) -> Result<(), http::Error> {
    let authority = authority_text(destination, tls);
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    (uri.scheme, uri.authority) = (None, None);
    parts.headers.remove(CONNECTION);
    if http2 {
        parts.version = Version::HTTP_2;
        parts.headers.remove(HOST);
        uri.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(Authority::try_from(authority)?);
        parts.uri = Uri::from_parts(uri)?;
    } else {
        parts.version = Version::HTTP_11;
        parts.uri = Uri::from_parts(uri)?;
        parts.headers.insert(HOST, HeaderValue::try_from(authority)?);
        if parts.headers.contains_key(TE) {
            parts.headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }
    Ok(())
}

/// The authority of a destination, as it will be named there; without the scheme's own port.
pub fn authority_text(destination: &Destination, tls: bool) -> String {
    let host = destination.host.in_url();
    match (destination.port, tls) {
        (443, true) | (80, false) => host,
        (port, _) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use sallyport_policy::Host;

    #[test]
    fn the_head_names_the_destination_in_the_way_of_each_version() {
        let destination = Destination {
            host: Host::parse("allowed.test").unwrap(),
            port: 8443,
        };
        let (mut parts, ()) = Request::builder()
            .uri("/b?x=%41")
            .header("te", "trailers")
            .body(())
            .unwrap()
            .into_parts();
        address_request(&mut parts, &destination, true, false).unwrap();
        assert_eq!(parts.headers["connection"], "te");
        address_request(&mut parts, &destination, true, true).unwrap();
        assert_eq!(parts.uri.to_string(), "https://allowed.test:8443/b?x=%41");
        assert!(!parts.headers.contains_key("host") && !parts.headers.contains_key("connection"));
        address_request(&mut parts, &destination, true, false).unwrap();
        assert_eq!(parts.uri.to_string(), "/b?x=%41");
        assert_eq!(parts.headers["host"], "allowed.test:8443");
    }

    #[test]
    fn the_usual_port_is_not_named() {
        for (host, port, tls, text) in [
            ("allowed.test", 443, true, "allowed.test"),
            ("allowed.test", 80, false, "allowed.test"),
            ("allowed.test", 443, false, "allowed.test:443"),
            ("::1", 443, true, "[::1]"),
        ] {
            let destination = Destination {
                host: Host::parse(host).unwrap(),
                port,
            };
            assert_eq!(authority_text(&destination, tls), text);
        }
    }
}
