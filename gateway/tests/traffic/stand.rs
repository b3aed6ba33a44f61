//! A gateway with one session on loopback, and clients that speak to it.
use crate::origin::Roots;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_gateway::audit::Sink;
use sallyport_gateway::control::types::{AuditRecord, SessionSpec};
use sallyport_gateway::downstream::Ways;
use sallyport_gateway::downstream::mtls::Entrance;
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::resolve::Resolver;
use sallyport_gateway::secret::live::Keeper;
use sallyport_gateway::secret::source::Variables;
use sallyport_gateway::secret::{SecretStore, Sources, Value};
use sallyport_gateway::session::Sessions;
use sallyport_gateway::ssh::host_key::HostKey;
use sallyport_gateway::tls::authorities::Authorities;
use sallyport_gateway::tls::machine::TunnelAuthority;
use sallyport_gateway::upstream::Outlet;
use sallyport_gateway::{Assembly, Gateway, crypto};
use sallyport_policy::{PolicyText, Who};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The value behind the credential `token`.
pub(crate) const SECRET: &str = "ghp_Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8U";

/// What a session is asked about, with the origin's port in place of `PORT`.
pub(crate) const POLICY: &str = r#"
version: 1
name: test
default: deny
credentials:
  token:
    from: {store: token}
    hosts: [allowed.test]
    in: [bearer, basic]
    env: TOKEN
rules:
  - id: allowed
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET, HEAD, POST, PUT], path: "/**", private: true}
    use: [token]
    effect: allow
  - id: store
    to: {host: [store.test, 127.0.0.0/8], port: PORT, methods: [GET], private: true}
    effect: allow
  - id: paths
    to: {host: [api.test, 127.0.0.0/8], port: PORT, methods: [GET], path: "/public/**", private: true}
    effect: allow
  - id: private
    to: {host: rebound.test, port: PORT, methods: [GET]}
    effect: allow
  - id: opaque
    to: {host: [opaque.test, 127.0.0.0/8], port: PORT, protocol: tcp, private: true}
    effect: allow
  - id: docs
    to: {host: docs.test, port: PORT, methods: [GET]}
    effect: deny
    grantable: {by: rule, uses: 5, expires: 1h}
    hint: Read the copy in the repository.
"#;

/// Everything that a test needs, gone when dropped.
pub(crate) struct Stand {
    pub(crate) gateway: Gateway,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) sink: Sink,
    pub(crate) proxy: SocketAddr,
    pub(crate) tunnel: SocketAddr,
    pub(crate) tunnels: Arc<TunnelAuthority>,
    pub(crate) token: String,
    pub(crate) placeholder: String,
    pub(crate) ca_pem: String,
    pub(crate) port: u16,
    roots_pem: String,
    serving: tokio::task::JoinHandle<()>,
    pub(crate) folder: tempfile::TempDir,
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Stand {
    /// A gateway whose session reaches the origin on `port` under its names.
    pub(crate) async fn new(roots: &Roots, port: u16) -> Self {
        Self::with_limits(roots, port, Limits::default()).await
    }

    pub(crate) async fn with_limits(roots: &Roots, port: u16, limits: Limits) -> Self {
        Self::with_resolver(roots, port, limits, Resolver::without_servers()).await
    }

    pub(crate) async fn with_resolver(roots: &Roots, port: u16, limits: Limits, resolver: Resolver) -> Self {
        Self::with_outlet(roots, port, limits, |_| Outlet::new(resolver)).await
    }

    /// A gateway with another way out, which may name secrets of the store.
    pub(crate) async fn with_outlet(
        roots: &Roots,
        port: u16,
        limits: Limits,
        outlet: impl FnOnce(&Arc<SecretStore>) -> Outlet,
    ) -> Self {
        Self::assembled(roots, port, (limits, no_fetching), outlet, |ways| ways).await
    }

    /// A gateway that fetches secrets.
    pub(crate) async fn with_fetching(
        roots: &Roots,
        port: u16,
        limits: Limits,
        fetching: impl FnOnce(&Path, &Arc<SecretStore>, &Limits) -> Option<Arc<Keeper>>,
    ) -> Self {
        let outlet = |_: &Arc<SecretStore>| Outlet::new(Resolver::without_servers());
        Self::assembled(roots, port, (limits, fetching), outlet, |ways| ways).await
    }

    /// A gateway with further ways in.
    pub(crate) async fn with_ways(
        roots: &Roots,
        port: u16,
        limits: Limits,
        further: impl FnOnce(Ways) -> Ways,
    ) -> Self {
        let outlet = |_: &Arc<SecretStore>| Outlet::new(Resolver::without_servers());
        Self::assembled(roots, port, (limits, no_fetching), outlet, further).await
    }

    async fn assembled(
        roots: &Roots,
        port: u16,
        (limits, fetching): (
            Limits,
            impl FnOnce(&Path, &Arc<SecretStore>, &Limits) -> Option<Arc<Keeper>>,
        ),
        outlet: impl FnOnce(&Arc<SecretStore>) -> Outlet,
        further: impl FnOnce(Ways) -> Ways,
    ) -> Self {
        crypto::install();
        let folder = tempfile::tempdir().unwrap();
        let sink = Sink::open(folder.path()).unwrap();
        let store = Arc::new(SecretStore::open(folder.path()).unwrap());
        store
            .set("token", Value::new(SECRET.as_bytes().to_vec()))
            .unwrap();
        let outlet = outlet(&store);
        let variables = std::iter::empty();
        let keeper = fetching(folder.path(), &store, &limits);
        let sources = Sources::new(
            store,
            Variables::from_environment(variables),
            folder.path().join("files"),
        );
        let sources = match keeper {
            Some(keeper) => sources.fetching(keeper),
            None => sources,
        };
        let sessions = Sessions::open(folder.path(), Arc::new(sources), sink.clone()).unwrap();
        let authorities = Arc::new(Authorities::open(&folder.path().join("ca"), &[]).unwrap());
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let entrance = Entrance::open(folder.path(), any).await.unwrap();
        let (tunnel, tunnels) = (entrance.tunnels.address, entrance.tunnels.authority.clone());
        let gateway = Gateway::new(Assembly {
            sessions: sessions.clone(),
            sink: sink.clone(),
            authorities,
            ssh_host_key: Arc::new(HostKey::open(folder.path()).unwrap()),
            upstream: outlet,
            ways: further(Ways {
                tunnel: Some(entrance),
                ..Ways::new(proxy)
            }),
            limits,
        })
        .unwrap();
        let serving = tokio::spawn({
            let gateway = gateway.clone();
            async move { gateway.run().await }
        });
        let mut stand = Self {
            ca_pem: gateway.authority_pem(),
            gateway,
            sessions,
            sink,
            proxy: address,
            tunnel,
            tunnels,
            token: String::new(),
            placeholder: String::new(),
            port,
            roots_pem: roots.pem(),
            serving,
            folder,
        };
        stand.put(POLICY);
        let view = stand.sessions.view("run-1", &stand.ca_pem).unwrap();
        stand.token = view.proxy_token;
        assert_eq!(view.credentials.len(), 1, "{:?}", view.warnings);
        stand.placeholder = view.credentials[0].placeholder.clone();
        stand
    }

    /// Replaces the session's policy.
    pub(crate) fn put(&self, policy: &str) {
        self.put_for("run-1", policy);
    }

    /// Opens a session, or replaces its policy.
    pub(crate) fn put_for(&self, run: &str, policy: &str) {
        let names = [
            "allowed.test",
            "other.test",
            "store.test",
            "api.test",
            "docs.test",
            "rebound.test",
            "opaque.test",
            "denied.test",
        ];
        let hosts = names.map(|name| (name, "127.0.0.1"));
        self.put_hosts(run, policy, &hosts);
    }

    /// Opens a session whose names have these addresses, or replaces its policy.
    pub(crate) fn put_hosts(&self, run: &str, policy: &str, hosts: &[(&str, &str)]) {
        let text = policy.replace("PORT", &self.port.to_string());
        let spec = SessionSpec {
            who: Who {
                run: run.into(),
                user: "ada".into(),
                ..Who::default()
            },
            policies: vec![PolicyText {
                name: "policy.yaml".into(),
                text,
            }],
            hosts: hosts
                .iter()
                .map(|(name, address)| ((*name).to_owned(), address.parse().unwrap()))
                .collect(),
            upstream_roots_pem: self.roots_pem.clone(),
        };
        self.sessions.put(run, spec).unwrap();
    }

    /// `host:port` of a name at the origin.
    pub(crate) fn at(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }

    /// `Proxy-Authorization` of the session.
    pub(crate) fn authorization(&self) -> String {
        authorization("run-1", &self.token)
    }

    /// A raw connection to the proxy.
    pub(crate) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.proxy).await.unwrap()
    }

    /// A tunnel, open.
    pub(crate) async fn tunnel(&self, authority: &str) -> TcpStream {
        self.tunnel_as(authority, &self.authorization()).await
    }

    /// A tunnel of whomever `Proxy-Authorization` names.
    pub(crate) async fn tunnel_as(&self, authority: &str, authorization: &str) -> TcpStream {
        let mut stream = self.dial().await;
        let request = format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: {authorization}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream
    }

    /// TLS inside a tunnel, trusting the gateway's authority only.
    pub(crate) async fn tls(
        &self,
        authority: &str,
        sni: &str,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.tls_over(self.tunnel(authority).await, Some(sni), alpn).await
    }

    /// TLS on a tunnel, with this SNI or none at all.
    pub(crate) async fn tls_over(
        &self,
        stream: TcpStream,
        sni: Option<&str>,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in rustls_pemfile::certs(&mut self.ca_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let mut config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|offer| offer.as_bytes().to_vec()).collect();
        config.enable_sni = sni.is_some();
        let name = sni.unwrap_or("allowed.test").to_owned();
        let name = rustls::pki_types::ServerName::try_from(name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// One HTTP/1.1 connection to a name at the origin.
    pub(crate) async fn h1(&self, host: &str) -> TlsStream<TcpStream> {
        self.tls(&self.at(host), host, &["http/1.1"]).await.unwrap()
    }

    /// One HTTP/2 connection to a name at the origin.
    pub(crate) async fn h2(&self, host: &str) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let stream = self.tls(&self.at(host), host, &["h2"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Sends raw bytes on a fresh HTTP/1.1 connection and reads everything until it is closed.
    pub(crate) async fn raw(&self, host: &str, bytes: &str) -> String {
        let mut stream = self.h1(host).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        read_all(&mut stream).await
    }

    /// One request by the plain proxy with an absolute target; the whole answer as text.
    pub(crate) async fn absolute(&self, line: &str, host: &str) -> String {
        let mut stream = self.dial().await;
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nProxy-Authorization: {}\r\n\r\n",
            self.authorization()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        read_all(&mut stream).await
    }

    /// `GET` with `Connection: close`; the whole answer as text.
    pub(crate) async fn get(&self, host: &str, path: &str) -> String {
        let at = self.at(host);
        self.raw(
            host,
            &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"),
        )
        .await
    }

    /// The records that fit, once there is one.
    pub(crate) async fn records_of(&self, fits: impl Fn(&AuditRecord) -> bool) -> Vec<AuditRecord> {
        self.records_until(1, &fits).await;
        self.records(1).await.into_iter().filter(fits).collect()
    }

    /// The first records that fit, once there are so many.
    pub(crate) async fn records_until(
        &self,
        count: usize,
        fits: impl Fn(&AuditRecord) -> bool,
    ) -> Vec<AuditRecord> {
        let fitting = self.sink.follow(0).map(Result::unwrap);
        let fitting = fitting
            .filter(|record| std::future::ready(record.kind != "session" && fits(record)))
            .take(count)
            .collect();
        let found = tokio::time::timeout(Duration::from_secs(20), fitting).await;
        found.unwrap_or_else(|_| panic!("no {count} such records"))
    }

    /// All records so far, oldest first, once there are at least `count`.
    pub(crate) async fn records(&self, count: usize) -> Vec<AuditRecord> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        loop {
            self.sink.flush().await.unwrap();
            let written = usize::try_from(self.sink.head()).unwrap();
            let whole = self.sink.follow(0).take(written);
            let records: Vec<_> = whole
                .map(Result::unwrap)
                .filter(|record| std::future::ready(record.kind != "session"))
                .collect()
                .await;
            if records.len() >= count || tokio::time::Instant::now() > deadline {
                assert!(
                    records.len() >= count,
                    "{count} records were awaited: {records:#?}"
                );
                return records;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn no_fetching(_: &Path, _: &Arc<SecretStore>, _: &Limits) -> Option<Arc<Keeper>> {
    None
}

/// `Proxy-Authorization` of a session.
pub(crate) fn authorization(run: &str, token: &str) -> String {
    use base64::Engine;
    let pair = format!("{run}:{token}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

/// Reads a head, to its empty line.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Reads until the other side closes; a close without TLS's farewell counts.
pub(crate) async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut all = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await;
    assert!(
        reading.is_ok(),
        "not closed; so far: {}",
        String::from_utf8_lossy(&all)
    );
    String::from_utf8_lossy(&all).into_owned()
}

/// Sends a request head (and body) and reads one answer with a `Content-Length`.
pub(crate) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &str,
) -> (String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(stream).await;
    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .map(str::to_owned)
        })
        .and_then(|text| text.parse::<usize>().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}
