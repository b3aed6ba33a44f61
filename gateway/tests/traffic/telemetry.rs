//! What a collector of spans and the log on standard error are told: who, where to, what was decided; never a value.
use crate::origin::{Origin, Roots};
use crate::stand::{SECRET, Stand, ask};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sallyport_gateway::log;
use sallyport_gateway::telemetry::{Export, Telemetry};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, registry};

/// Bodies that were posted, with their paths.
type Posted = Arc<Mutex<Vec<(String, Bytes)>>>;

/// A collector that takes everything, over TLS where it has a certificate.
async fn collector(tls: Option<TlsAcceptor>) -> (String, Posted) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let address = format!("{scheme}://{}", listener.local_addr().unwrap());
    let posted = Posted::default();
    let taking = posted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let taking = taking.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let taking = taking.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    taking.lock().unwrap().push((path, body));
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                }
            });
            let http = hyper::server::conn::http1::Builder::new();
            match &tls {
                None => drop(tokio::spawn(http.serve_connection(TokioIo::new(stream), service))),
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => drop(tokio::spawn(http.serve_connection(TokioIo::new(stream), service))),
                    // A client that does not trust it is part of a test.
                    Err(_) => continue,
                },
            }
        }
    });
    (address, posted)
}

fn telemetry(address: &str, sample: Option<f64>, limit: Duration) -> Telemetry {
    trusting(address, (sample, limit), rustls::RootCertStore::empty())
}

fn trusting(
    address: &str,
    (sample, limit): (Option<f64>, Duration),
    roots: rustls::RootCertStore,
) -> Telemetry {
    let export = Export {
        collector: Export::address(address).unwrap(),
        sample,
    };
    Telemetry::start(&export, roots, limit, Handle::current()).unwrap()
}

/// All spans of all bodies.
fn spans(posted: &Posted) -> Vec<Span> {
    let posted = posted.lock().unwrap();
    let requests = posted.iter().map(|(path, body)| {
        assert_eq!(path, "/v1/traces");
        ExportTraceServiceRequest::decode(body.clone()).unwrap()
    });
    requests
        .flat_map(|request| request.resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key}: {other:?}"),
    }
}

/// One request with the placeholder in a header and more in its path and query, and one that is refused.
async fn traffic(stand: &Stand) {
    let at = stand.at("allowed.test");
    let request = format!(
        "GET /private-path?private=query HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\nX-Private: \
         private-field\r\nConnection: close\r\n\r\n",
        stand.placeholder
    );
    let told = stand.raw("allowed.test", &request).await;
    assert!(
        told.starts_with("HTTP/1.1 200 ") && told.contains(&stand.placeholder),
        "{told}"
    );
    assert!(stand.get("denied.test", "/").await.starts_with("HTTP/1.1 403 "));
    while stand.gateway.metrics().path().open_connections() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_collector_sees_a_span_for_each_connection_each_exchange_and_its_phases_and_no_value() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let (address, posted) = collector(None).await;
    let telemetry = telemetry(&address, Some(1.0), Duration::from_secs(10));
    let listening = tracing::subscriber::set_default(registry().with(telemetry.layer()));
    traffic(&stand).await;
    drop(listening);
    tokio::task::spawn_blocking(|| telemetry.finish()).await.unwrap();

    let spans = spans(&posted);
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (connections, exchanges) = (named("connection"), named("http"));
    assert_eq!(
        (connections.len(), exchanges.len(), spans.len()),
        (2, 2, 6),
        "{spans:#?}"
    );
    let records = stand.records(2).await;
    for (record, verdict) in records.iter().zip(["allowed", "denied"]) {
        let fits = |span: &&&Span| text(&span.attributes, "decision").as_ref() == Some(&record.id);
        let span = exchanges.iter().find(fits).unwrap();
        let told = |key: &str| text(&span.attributes, key).unwrap_or_default();
        assert_eq!(told("verdict"), verdict);
        assert_eq!(told("server.address"), record.host);
        assert_eq!(told("rule"), record.rule);
        assert_eq!(told("session"), "run-1");
        assert_eq!(told("http.request.method"), "GET");
        assert_eq!(
            told("http.response.status_code"),
            record.status.unwrap().to_string()
        );
        let above = connections
            .iter()
            .find(|above| above.span_id == span.parent_span_id);
        assert_eq!(
            text(&above.unwrap().attributes, "server.address").unwrap(),
            record.host
        );
    }
    let allowed = exchanges
        .iter()
        .find(|span| text(&span.attributes, "verdict").unwrap() == "allowed");
    let (upstream, dial) = (named("upstream")[0], named("dial")[0]);
    assert_eq!(upstream.parent_span_id, allowed.unwrap().span_id);
    assert_eq!(dial.parent_span_id, upstream.span_id);
    assert!(dial.start_time_unix_nano <= dial.end_time_unix_nano);

    let all: Vec<u8> = posted
        .lock()
        .unwrap()
        .iter()
        .flat_map(|(_, body)| body.to_vec())
        .collect();
    let all = String::from_utf8_lossy(&all);
    assert!(all.contains("sallyport-gateway"), "the service is named");
    for hidden in [SECRET, &stand.placeholder, &stand.token, "private"] {
        assert!(!all.contains(hidden), "`{hidden}` went out");
    }
}

#[tokio::test]
async fn where_nothing_is_sampled_nothing_is_sent() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let (address, posted) = collector(None).await;
    let telemetry = telemetry(&address, Some(0.0), Duration::from_secs(10));
    let listening = tracing::subscriber::set_default(registry().with(telemetry.layer()));
    traffic(&stand).await;
    drop(listening);
    tokio::task::spawn_blocking(|| telemetry.finish()).await.unwrap();
    assert!(spans(&posted).is_empty());
}

#[tokio::test]
async fn a_collector_behind_tls_gets_spans_where_its_certificate_is_vouched_for_and_nothing_elsewhere() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut trusted = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut roots.pem().as_bytes()) {
        trusted.add(certificate.unwrap()).unwrap();
    }
    for (trusted, arrive) in [(trusted, true), (rustls::RootCertStore::empty(), false)] {
        let (address, posted) = collector(Some(roots.acceptor(&["127.0.0.1"], &[]))).await;
        let telemetry = trusting(&address, (None, Duration::from_secs(10)), trusted);
        let listening = tracing::subscriber::set_default(registry().with(telemetry.layer()));
        traffic(&stand).await;
        drop(listening);
        tokio::task::spawn_blocking(|| telemetry.finish()).await.unwrap();
        assert_eq!(!spans(&posted).is_empty(), arrive);
    }
}

#[tokio::test]
async fn a_collector_that_takes_a_request_and_never_answers_holds_up_nothing() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    // Connections are made by the kernel, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let telemetry = telemetry(&address, None, Duration::from_millis(200));
    let listening = tracing::subscriber::set_default(registry().with(telemetry.layer()));
    traffic(&stand).await;
    // The exporter waits on its own thread for the end of its one try.
    tokio::task::spawn_blocking(|| telemetry.finish()).await.unwrap();
    assert!(stand.get("allowed.test", "/").await.starts_with("HTTP/1.1 200 "));
    drop(listening);
}

/// What a log wrote.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn the_log_holds_no_value_even_where_everything_is_logged() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    for form in [log::Form::Text, log::Form::Json] {
        let written = Written::default();
        let layer = log::layer(EnvFilter::new("trace"), form, written.clone());
        let listening = tracing::subscriber::set_default(registry().with(layer));
        traffic(&stand).await;
        let mut kept = stand.h1("allowed.test").await;
        let head = format!(
            "GET / HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            stand.at("allowed.test"),
            stand.placeholder
        );
        assert!(ask(&mut kept, &head).await.1.contains(&stand.placeholder));
        drop(listening);
        let said = written.text();
        assert!(said.contains("h2::"), "libraries are heard too");
        let leak = said.lines().find(|line| line.contains(SECRET));
        assert_eq!(leak, None, "{form:?}");
    }
}
