//! Origins: TLS servers on loopback with an authority of their own, which note what reached them.
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A body of an origin's answer.
pub(crate) type Reply = UnsyncBoxBody<Bytes, std::io::Error>;

/// An authority for origins.
pub(crate) struct Roots {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Roots {
    pub(crate) fn new() -> Self {
        sallyport_gateway::crypto::install();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two authorities of one name would be told apart by their signatures only.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("origins {}", MADE.fetch_add(1, Ordering::SeqCst));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.pem.clone()
    }

    /// A certificate of this authority, as PEM and with its key.
    pub(crate) fn sign(&self, params: &CertificateParams) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A server's side of TLS for these names.
    pub(crate) fn acceptor(&self, names: &[&str], alpn: &[&str]) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (leaf, key) = self.sign(&CertificateParams::new(names).unwrap());
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], der)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|offer| offer.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The names that an origin's certificate is for.
pub(crate) const NAMES: [&str; 8] = [
    "allowed.test",
    "other.test",
    "store.test",
    "api.test",
    "docs.test",
    "rebound.test",
    "denied.test",
    "127.0.0.1",
];

/// A running origin.
pub(crate) struct Origin {
    pub(crate) port: u16,
    /// Heads that reached it: `METHOD target` and header lines.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    /// An origin that answers each request by a function, over h2 or http/1.1 as `alpn` says.
    pub(crate) async fn http<F, R>(roots: &Roots, alpn: &[&str], answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Reply>> + Send + 'static,
    {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let noting = seen.clone();
        let mut origin = Self::raw(roots, alpn, move |stream: TlsStream<TcpStream>| {
            let (answer, noting) = (answer.clone(), noting.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                noting.lock().unwrap().push(head_text(&request));
                let answering = answer(request);
                async move { Ok::<_, Infallible>(answering.await) }
            });
            async move {
                let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                builder.http1().half_close(true);
                // A client that leaves early is part of some tests.
                let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await;
        origin.seen = seen;
        origin
    }

    /// An origin that does with each TLS connection what the function says.
    pub(crate) async fn raw<F, R>(roots: &Roots, alpn: &[&str], handle: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::accepting(roots.acceptor(&NAMES, alpn), handle).await
    }

    /// The same, with its own side of TLS.
    pub(crate) async fn accepting<F, R>(acceptor: TlsAcceptor, handle: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections: Arc<AtomicUsize> = Arc::default();
        let counter = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                if let Ok(stream) = acceptor.accept(stream).await {
                    tokio::spawn(handle(stream));
                }
            }
        });
        Self {
            port,
            seen: Arc::default(),
            connections,
            task,
        }
    }

    /// Echoes the request's head as the body; `/echo` echoes the request's body.
    pub(crate) async fn echo(roots: &Roots, alpn: &[&str]) -> Self {
        Self::http(roots, alpn, |request| async move {
            if request.uri().path() == "/echo" {
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .map(|body| body.to_bytes())
                    .unwrap_or_default();
                return Response::new(full(body));
            }
            Response::new(full(head_text(&request)))
        })
        .await
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A whole body at once.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Reply {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn head_text(request: &Request<Incoming>) -> String {
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        text.push_str(&format!(
            "{name}: {}\n",
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    text
}

/// What reached an origin: heads, and whole bodies.
pub(crate) type Got = Arc<Mutex<Vec<(Parts, Bytes)>>>;

/// An origin that says `done` to whatever reaches it whole, and what that was.
pub(crate) async fn taking(roots: &Roots, alpn: &[&str]) -> (Origin, Got) {
    let got = Got::default();
    let noting = got.clone();
    let origin = Origin::http(roots, alpn, move |request| {
        let noting = noting.clone();
        async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await else {
                return Response::builder().status(400).body(full("torn")).unwrap();
            };
            noting.lock().unwrap().push((parts, body.to_bytes()));
            Response::new(full("done"))
        }
    })
    .await;
    (origin, got)
}
