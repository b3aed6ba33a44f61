//! The supervisor's client against the gateway's own control server: every call, and every way in which it can fail.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]
use futures_util::StreamExt;
use sallyport_gateway::audit::Sink;
use sallyport_gateway::control::handover::{self, ListenerHost};
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, ListenerKind, SessionSpec, Verdict,
};
use sallyport_gateway::control::{self, Control};
use sallyport_gateway::metrics::Metrics;
use sallyport_gateway::secret::source::Variables;
use sallyport_gateway::secret::{SecretStore, Sources};
use sallyport_gateway::session::{Session, Sessions};
use sallyport_gateway::standing::{Kept, Standing};
use sallyport_gateway::tls::authorities::Authorities;
use sallyport_policy::{Grant, PolicyText, Wanted, Who};
use sallyport_supervisor::gateway::{Client, Door, GatewayError};
use sallyport_supervisor::machine::Attachment;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

const POLICY: &str = r#"version: 1
name: p
rules:
  - {id: docs, to: {host: docs.test}, effect: deny, grantable: {by: rule, uses: 5, expires: 1h}}
  - {id: paste, to: {host: paste.test}, effect: deny}
"#;

/// Keeps what is handed over.
#[derive(Default)]
struct Host {
    taken: Mutex<Vec<(String, ListenerKind, OwnedFd)>>,
}

impl ListenerHost for Host {
    fn serve(&self, session: Arc<Session>, listeners: Vec<(ListenerKind, OwnedFd)>) -> Result<(), String> {
        if listeners.len() > 2 {
            return Err("too many for this test".to_owned());
        }
        let mut taken = self.taken.lock().unwrap();
        taken.extend(
            listeners
                .into_iter()
                .map(|(kind, fd)| (session.id().to_owned(), kind, fd)),
        );
        Ok(())
    }
}

struct Stand {
    client: Client,
    sink: Sink,
    host: Arc<Host>,
    stop: CancellationToken,
    folder: tempfile::TempDir,
}

async fn stand() -> Stand {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let store = Arc::new(SecretStore::open(path).unwrap());
    let variables = Variables::from_environment(std::iter::empty());
    let sources = Arc::new(Sources::new(store.clone(), variables, path.join("files")));
    let sink = Sink::open(path).unwrap();
    let kept = Kept::open(path).unwrap();
    let sessions = Sessions::open_under(kept.layers(), path, sources, sink.clone()).unwrap();
    let metrics = Metrics::default();
    let standing = Standing::start(kept, sessions.clone(), sink.clone(), metrics.clone())
        .await
        .unwrap();
    let (host, stop) = (Arc::new(Host::default()), CancellationToken::new());
    let api = Control {
        sessions: sessions.clone(),
        standing,
        metrics,
        sink: sink.clone(),
        secrets: store,
        authorities: Arc::new(Authorities::open(&path.join("ca"), &[]).unwrap()),
        ssh_host_key: "* ssh-ed25519 KEY".into(),
        proxy: "127.0.0.1:1".into(),
        tunnel: None,
        stop: stop.clone(),
    };
    let control = control::bind(&path.join("gateway.sock")).unwrap();
    let listener = control::bind(&path.join("handover.sock")).unwrap();
    tokio::spawn(control::serve::serve(control, api));
    tokio::spawn(handover::serve(listener, sessions, host.clone(), stop.clone()));
    let client = Client::new(path.join("gateway.sock"), path.join("handover.sock"));
    Stand {
        client,
        sink,
        host,
        stop,
        folder,
    }
}

fn spec() -> SessionSpec {
    SessionSpec {
        who: Who {
            run: "run 1".into(),
            ..Who::default()
        },
        policies: vec![PolicyText {
            name: "p.yaml".into(),
            text: POLICY.into(),
        }],
        hosts: BTreeMap::new(),
        upstream_roots_pem: String::new(),
    }
}

fn wish(host: &str) -> AccessRequest {
    let wanted = Wanted {
        credential: None,
        host: host.into(),
        port: 443,
        method: None,
        path: None,
    };
    AccessRequest {
        wanted,
        why: "needed".into(),
    }
}

#[tokio::test]
async fn sessions_wishes_and_grants_go_through() {
    let stand = stand().await;
    let client = &stand.client;
    assert_eq!(client.health().await.unwrap().pid, std::process::id());
    let view = client.put_session("run-1", &spec()).await.unwrap();
    assert_eq!(view.id, "run-1");
    assert!(
        view.ca_pem.starts_with("-----BEGIN CERTIFICATE-----"),
        "{}",
        view.ca_pem
    );
    assert_eq!(view.ssh_host_key, "* ssh-ed25519 KEY");
    assert_eq!(client.put_session("run-1", &spec()).await.unwrap(), view);
    let AccessAnswer::Granted { grant } = client.access("run-1", &wish("docs.test")).await.unwrap() else {
        panic!("not granted")
    };
    let refused = client.access("run-1", &wish("paste.test")).await.unwrap();
    assert!(matches!(refused, AccessAnswer::Refused { .. }));
    let by_person = Grant {
        credential: None,
        by: "ada".into(),
        id: String::new(),
        ..grant
    };
    client.grant("run-1", &by_person).await.unwrap();
    client.delete_session("run-1").await.unwrap();
    let error = client.access("run-1", &wish("docs.test")).await.unwrap_err();
    assert!(
        matches!(&error, GatewayError::Refused(problem) if problem.status == 404),
        "{error}"
    );
}

#[tokio::test]
async fn a_broken_policy_comes_back_with_its_problems() {
    let stand = stand().await;
    let mut broken = spec();
    broken.policies[0].text = "version: 1\nrulez: []\n".into();
    match stand.client.put_session("run-1", &broken).await.unwrap_err() {
        GatewayError::Refused(problem) => {
            assert_eq!(problem.status, 422);
            assert_eq!(problem.policy[0].line, 2);
        }
        other => panic!("{other}"),
    }
    let error = stand.client.put_session("run/../x", &spec()).await.unwrap_err();
    assert!(
        matches!(&error, GatewayError::Refused(problem) if problem.status == 422),
        "{error}"
    );
}

#[tokio::test]
async fn events_come_from_any_point_on_live_and_end_with_the_gateway() {
    let stand = stand().await;
    stand.client.put_session("run-1", &spec()).await.unwrap();
    for _ in 0..3 {
        stand.client.access("run-1", &wish("paste.test")).await.unwrap();
    }
    // The first record says whose session it is.
    let mut events = stand.client.events(2).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 3);
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 4);
    let wanted = wish("docs.test");
    let (live, _) = tokio::join!(events.next(), stand.client.access("run-1", &wanted));
    let live = live.unwrap().unwrap();
    assert_eq!((live.sequence, live.verdict), (5, Verdict::Granted));
    stand.stop.cancel();
    assert!(events.next().await.is_none_or(|last| last.is_err()));
    assert_eq!(stand.sink.head(), 5);
}

#[tokio::test]
async fn the_log_is_searched_with_every_field() {
    let stand = stand().await;
    stand.client.put_session("run-1", &spec()).await.unwrap();
    for host in ["docs.test", "paste.test", "a&b=c"] {
        stand.client.access("run-1", &wish(host)).await.unwrap();
    }
    let query = AuditQuery {
        session: Some("run-1".into()),
        host: Some("paste.test".into()),
        verdict: Some(Verdict::Denied),
        before: Some(100),
        limit: Some(10),
    };
    let found = stand.client.audit(&query).await.unwrap();
    assert_eq!(
        found
            .iter()
            .map(|record| record.host.as_str())
            .collect::<Vec<_>>(),
        ["paste.test"]
    );
    let odd = AuditQuery {
        host: Some("a&b=c".into()),
        ..AuditQuery::default()
    };
    assert_eq!(stand.client.audit(&odd).await.unwrap().len(), 1);
    let all = stand.client.audit(&AuditQuery::default()).await.unwrap();
    let kinds: Vec<&str> = all.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(kinds, ["access", "access", "access", "session"]);
}

#[tokio::test]
async fn listeners_are_handed_over_in_order_and_work() {
    let stand = stand().await;
    stand.client.put_session("run-1", &spec()).await.unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (tcp_address, udp_address) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
    let attachment = Attachment {
        redirect: vec![tcp.into()],
        dns: vec![udp.into()],
    };
    stand.client.hand_over("run-1", attachment).await.unwrap();
    let taken: Vec<_> = stand.host.taken.lock().unwrap().drain(..).collect();
    let [
        (session, ListenerKind::Redirect, first),
        (_, ListenerKind::Dns, second),
    ] = <[_; 2]>::try_from(taken).unwrap()
    else {
        panic!("kinds in order")
    };
    assert_eq!(session, "run-1");
    let listener = std::net::TcpListener::from(first);
    assert_eq!(listener.local_addr().unwrap(), tcp_address);
    assert_eq!(
        std::net::UdpSocket::from(second).local_addr().unwrap(),
        udp_address
    );
    let mut client = std::net::TcpStream::connect(tcp_address).unwrap();
    client.write_all(b"x").unwrap();
    listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
}

#[tokio::test]
async fn a_hand_over_that_makes_no_sense_is_refused_in_words() {
    let stand = stand().await;
    let one = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let attachment = |count: usize| Attachment {
        redirect: (0..count).map(|_| one()).collect(),
        dns: Vec::new(),
    };
    let error = stand
        .client
        .hand_over("run-1", attachment(1))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("no session `run-1`"), "{error}");
    stand.client.put_session("run-1", &spec()).await.unwrap();
    for (count, why) in [
        (0, "0 listeners"),
        (3, "too many for this test"),
        (17, "17 listeners"),
    ] {
        let error = stand
            .client
            .hand_over("run-1", attachment(count))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error}");
    }
    let mut raw = std::os::unix::net::UnixStream::connect(stand.folder.path().join("handover.sock")).unwrap();
    raw.write_all(b"{\"session\": \"run-1\", \"listeners\": [\"redirect\"]}\n")
        .unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        raw.read_to_string(&mut answer).map(|_| answer)
    });
    let answer = answer.await.unwrap().unwrap();
    assert!(
        answer.contains("refused") && answer.contains("0 descriptors"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_named() {
    let client = Client::new("/nowhere/gateway.sock", "/nowhere/handover.sock");
    let error = client.health().await.unwrap_err();
    assert!(matches!(error, GatewayError::Unreachable { .. }));
    assert!(error.to_string().contains("/nowhere/gateway.sock"), "{error}");
    let attachment = Attachment {
        redirect: Vec::new(),
        dns: Vec::new(),
    };
    let error = client.hand_over("r", attachment).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/handover.sock"), "{error}");
}

#[tokio::test]
async fn a_socket_that_answers_nonsense_is_said_to() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
            "what?\r\n\r\n",
        ] {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = Client::new(&path, &path);
    assert!(matches!(
        client.health().await.unwrap_err(),
        GatewayError::Nonsense(_)
    ));
    assert!(matches!(
        client.health().await.unwrap_err(),
        GatewayError::Nonsense(_)
    ));
    assert!(matches!(
        client.health().await.unwrap_err(),
        GatewayError::Unreachable { .. }
    ));
}
