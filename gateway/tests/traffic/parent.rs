//! The way out through a parent proxy: what it is asked for, its log-in, its refusals.
use crate::dns::Dns;
use crate::origin::{Origin, Roots};
use crate::stand::Stand;
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::resolve::Resolver;
use sallyport_gateway::secret::Value;
use sallyport_gateway::upstream::{Direct, Outlet, Parent, ParentSpec};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const POLICY: &str = r#"
version: 1
name: through
rules:
  - {id: far, to: {host: [far.test, 10.9.9.9], port: PORT, private: true}, effect: allow}
  - {id: named, to: {host: [named.test, printer., 10.9.8.7], port: PORT}, effect: allow}
  - {id: opaque, to: {host: [opaque.test, 10.9.9.8], port: PORT, protocol: tcp, private: true}, effect: allow}
"#;
const HOSTS: [(&str, &str); 2] = [("far.test", "10.9.9.9"), ("opaque.test", "10.9.9.8")];
const PASSWORD: &str = "a corporate password";

/// A proxy that notes the heads of what it is asked, gives an answer, and connects everything to one port of loopback.
pub(crate) struct Proxy {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(crate) async fn new(port: u16, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noting = asked.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, port, answer, noting.clone()));
            }
        });
        Self { url, asked, task }
    }

    async fn over_tls(roots: &Roots, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noting, acceptor) = (asked.clone(), roots.acceptor(&["127.0.0.1"], &[]));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    tokio::spawn(serve(stream, port, OPEN, noting.clone()));
                }
            }
        });
        Self { url, asked, task }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The answer to a CONNECT that is granted.
pub(crate) const OPEN: &str = "HTTP/1.1 200 Connection established\r\nVia: 1.1 corp\r\n\r\n";

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    port: u16,
    answer: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
) {
    let head = crate::stand::read_head(&mut stream).await;
    asked.lock().unwrap().push(head);
    stream.write_all(answer.as_bytes()).await.unwrap();
    if answer == OPEN {
        let mut origin = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // Whoever closes first is part of some tests.
        let _ended = tokio::io::copy_bidirectional(&mut stream, &mut origin).await;
    } else if answer.is_empty() || !answer.ends_with("\r\n\r\n") {
        std::future::pending::<()>().await;
    }
}

fn spec(proxy: &Proxy) -> ParentSpec {
    ParentSpec::read(&proxy.url).unwrap()
}

async fn stand_with(roots: &Roots, port: u16, limits: Limits, spec: ParentSpec, resolver: Resolver) -> Stand {
    let roots_pem = roots.pem().into_bytes();
    let stand = Stand::with_outlet(roots, port, limits, |store| {
        let password = Value::new(PASSWORD.as_bytes().to_vec());
        store.set("corp-proxy", password).unwrap();
        Outlet {
            parent: Some(Parent::new(spec, store)),
            roots_pem,
            ..Outlet::new(resolver)
        }
    })
    .await;
    stand.put_hosts("run-1", POLICY, &HOSTS);
    stand
}

async fn stand(roots: &Roots, port: u16, spec: ParentSpec) -> Stand {
    stand_with(roots, port, Limits::default(), spec, Resolver::without_servers()).await
}

/// An origin over plain HTTP.
async fn plain() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = crate::stand::read_head(&mut stream).await;
                let line = head.lines().next().unwrap_or_default();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}",
                    line.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    (port, task)
}

async fn get(stand: &Stand, host: &str) -> String {
    let at = stand.at(host);
    stand.absolute(&format!("GET http://{at}/x"), &at).await
}

async fn last(stand: &Stand) -> AuditRecord {
    stand.records(1).await.pop().unwrap()
}

#[tokio::test]
async fn the_proxy_is_asked_for_the_judged_address_with_its_log_in_and_tls_is_checked_through_it() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let proxy = Proxy::new(origin.port, OPEN).await;
    let login = ParentSpec {
        user: Some("ada".to_owned()),
        secret: Some("corp-proxy".to_owned()),
        ..spec(&proxy)
    };
    let stand = stand(&roots, origin.port, login).await;
    let hosts = [("allowed.test", "10.9.9.9")];
    stand.put_hosts("run-1", &POLICY.replace("far.test", "allowed.test"), &hosts);
    for _ in 0..2 {
        let answer = stand.get("allowed.test", "/x").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let asked = proxy.asked();
    assert_eq!(
        asked.len(),
        1,
        "the second request goes on the same connection: {asked:?}"
    );
    let basic = crate::stand::authorization("ada", PASSWORD);
    let target = format!("10.9.9.9:{}", origin.port);
    assert_eq!(
        asked[0],
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {basic}\r\n\r\n")
    );
    let records = stand.records(2).await;
    assert!(
        records[0].reason.contains("through the proxy"),
        "{}",
        records[0].reason
    );
}

#[tokio::test]
async fn a_tunnel_goes_through_it_too_and_what_the_far_side_says_first_is_not_lost() {
    let roots = Roots::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let greeting = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 ready\r\n").await.unwrap();
    });
    let proxy = Proxy::new(port, OPEN).await;
    let stand = stand(&roots, port, spec(&proxy)).await;
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    assert_eq!(crate::stand::read_all(&mut stream).await, "220 ready\r\n");
    greeting.await.unwrap();
    assert!(!proxy.asked()[0].contains("Authorization"), "{:?}", proxy.asked());
}

#[tokio::test]
async fn tls_is_spoken_to_a_proxy_that_wants_it() {
    let roots = Roots::new();
    let (port, _origin) = plain().await;
    let proxy = Proxy::over_tls(&roots, port).await;
    let stand = stand(&roots, port, spec(&proxy)).await;
    let answer = get(&stand, "far.test").await;
    assert!(answer.ends_with("GET /x HTTP/1.1"), "{answer}");
    assert_eq!(proxy.asked().len(), 1);
}

#[tokio::test]
async fn its_refusals_are_told_with_what_to_do() {
    for (answer, status, error, words) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            502,
            "proxy_configuration_error",
            "--upstream-proxy-secret",
        ),
        (
            "HTTP/1.1 403 Not on the list\r\n\r\n",
            502,
            "proxy_internal_response",
            "403 Not on the list",
        ),
        (
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
            502,
            "proxy_internal_response",
            "502 Bad Gateway",
        ),
        ("nonsense\r\n\r\n", 502, "proxy_internal_error", "no HTTP"),
    ] {
        let roots = Roots::new();
        let proxy = Proxy::new(1, answer).await;
        let stand = stand(&roots, 1, spec(&proxy)).await;
        let told = get(&stand, "far.test").await;
        assert!(
            told.starts_with(&format!("HTTP/1.1 {status} ")) && told.contains(error) && told.contains(words),
            "{answer}: {told}"
        );
        let record = last(&stand).await;
        assert_eq!(record.verdict, Verdict::UpstreamFailed);
        assert!(record.reason.contains(words), "{}", record.reason);
    }
}

#[tokio::test]
async fn a_proxy_that_is_silent_or_never_ends_its_answer_is_given_up() {
    let roots = Roots::new();
    let limits = Limits {
        parent_answer: Duration::from_millis(200),
        ..Limits::default()
    };
    let silent = Proxy::new(1, "").await;
    let stand = stand_with(&roots, 1, limits, spec(&silent), Resolver::without_servers()).await;
    let told = get(&stand, "far.test").await;
    assert!(
        told.starts_with("HTTP/1.1 504 ") && told.contains("did not answer"),
        "{told}"
    );
    let endless: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(64 * 1024)).into_boxed_str());
    let endless = Proxy::new(1, endless).await;
    let stand = stand_with(
        &roots,
        1,
        Limits::default(),
        spec(&endless),
        Resolver::without_servers(),
    )
    .await;
    let told = get(&stand, "far.test").await;
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("does not end"),
        "{told}"
    );
}

#[tokio::test]
async fn a_missing_password_and_an_unreachable_proxy_are_named() {
    let roots = Roots::new();
    let proxy = Proxy::new(1, OPEN).await;
    let login = ParentSpec {
        user: Some("ada".to_owned()),
        secret: Some("not-there".to_owned()),
        ..spec(&proxy)
    };
    let told = get(&stand(&roots, 1, login).await, "far.test").await;
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("secret set not-there"),
        "{told}"
    );
    assert_eq!(proxy.asked(), Vec::<String>::new());
    let gone = ParentSpec::read("http://127.0.0.1:1").unwrap();
    let told = get(&stand(&roots, 1, gone).await, "far.test").await;
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("`127.0.0.1:1`"),
        "{told}"
    );
}

#[tokio::test]
async fn exceptions_and_loopback_are_dialled_straight() {
    let roots = Roots::new();
    let (port, _origin) = plain().await;
    let proxy = Proxy::new(port, OPEN).await;
    let policy = POLICY.replace("10.9.9.9", "127.0.0.1");
    let stand = stand(&roots, port, spec(&proxy)).await;
    stand.put_hosts("run-1", &policy, &[("far.test", "127.0.0.1")]);
    assert!(get(&stand, "far.test").await.ends_with("GET /x HTTP/1.1"));
    let exempt = ParentSpec {
        direct: vec![Direct::read("far.test").unwrap()],
        ..spec(&proxy)
    };
    let stand = stand_with(&roots, port, quick(), exempt, Resolver::without_servers()).await;
    let told = get(&stand, "far.test").await;
    assert!(!told.contains("proxy `"), "{told}");
    assert_eq!(proxy.asked(), Vec::<String>::new());
}

/// Nobody answers at 10.9.9.9.
fn quick() -> Limits {
    Limits {
        upstream_connect: Duration::from_millis(200),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_proxy_that_looks_names_up_is_sent_the_name_but_no_local_one_and_no_closed_address() {
    let roots = Roots::new();
    let (port, _origin) = plain().await;
    let proxy = Proxy::new(port, OPEN).await;
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let names = ParentSpec {
        resolves: true,
        ..spec(&proxy)
    };
    let stand = stand_with(&roots, port, Limits::default(), names, dns.resolver()).await;
    assert!(get(&stand, "named.test").await.ends_with("GET /x HTTP/1.1"));
    assert!(get(&stand, "far.test").await.ends_with("GET /x HTTP/1.1"));
    for (host, why) in [("printer", "local name"), ("10.9.8.7", "private")] {
        let told = get(&stand, host).await;
        assert!(
            told.starts_with("HTTP/1.1 403 ") && told.contains(why),
            "{host}: {told}"
        );
    }
    let targets: Vec<_> = proxy
        .asked()
        .iter()
        .map(|head| head.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(
        targets,
        [format!("named.test:{port}"), format!("10.9.9.9:{port}")]
    );
    assert_eq!(dns.asked(), Vec::<String>::new());
}
