//! What must not pass to a database does not, and a connection that is ended is told so.
use crate::database::{DATABASE, Database, both, said};
use crate::origin::{NAMES, Roots};
use crate::parent::{OPEN, Proxy};
use crate::stand::{SECRET, Stand};
use futures_util::{SinkExt, TryStreamExt};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::resolve::Resolver;
use sallyport_gateway::secret::SecretStore;
use sallyport_gateway::upstream::{Outlet, Parent, ParentSpec};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The SQLSTATE and the message of an error that the gateway made.
fn told(error: &tokio_postgres::Error) -> (String, String) {
    let told = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
    (told.code().code().to_owned(), told.message().to_owned())
}

#[tokio::test]
async fn a_real_value_never_reaches_the_server_whole_however_it_is_sent() {
    let (stand, database) = both().await;
    let client = stand.client("shop").await;
    let refused = client
        .batch_execute(&format!("SELECT '{SECRET}'"))
        .await
        .unwrap_err();
    let (code, message) = told(&refused);
    assert_eq!(code, "42501");
    assert!(message.contains("credential `db` itself"), "{message}");
    assert!(
        client.batch_execute("SELECT 1").await.is_err(),
        "the connection is over"
    );

    let client = stand.client("shop").await;
    let parameter = format!("x{SECRET}");
    let refused = client.query("SELECT $1::text", &[&parameter]).await.unwrap_err();
    assert_eq!(told(&refused).0, "42501");

    let client = stand.client("shop").await;
    client
        .batch_execute("CREATE TABLE texts (line text)")
        .await
        .unwrap();
    let copying = async {
        let mut sink = Box::pin(client.copy_in("COPY texts FROM STDIN").await?);
        let (head, tail) = SECRET.split_at(20);
        for piece in ["before\n", head, tail, "\n"] {
            sink.send(bytes::Bytes::copy_from_slice(piece.as_bytes())).await?;
        }
        sink.as_mut().finish().await
    };
    assert!(copying.await.is_err());
    let denied = stand.records_of(|record| record.verdict == Verdict::Denied);
    assert_eq!(denied.await.len(), 3);
    let records = stand.records(0).await;
    assert!(!format!("{records:?}").contains(SECRET));
    let rows = database
        .admin_of("shop")
        .await
        .query("SELECT * FROM texts", &[])
        .await
        .unwrap();
    assert!(rows.is_empty(), "what was copied so far is not kept");
}

#[tokio::test]
async fn the_limits_of_a_rule_are_told_in_the_words_of_a_server() {
    let (stand, _database) = both().await;
    let limit = |text: &str| DATABASE.replacen("use: [db]", &format!("use: [db]\n    limit: {text}"), 1);
    stand.put(&limit("{connections: 1}"));
    let first = stand.client("shop").await;
    let full = stand
        .psql("allowed.test", "user=agent dbname=shop", "SELECT 1")
        .await;
    assert!(
        said(&full)
            .1
            .contains("rule `shop` lets 1 request be under way at once"),
        "{full:?}"
    );
    let refused = stand.log_in("shop", &stand.password()).await.err().unwrap();
    assert_eq!(refused.code().unwrap().code(), "53300");
    drop(first);
    stand
        .records_of(|record| record.ending == "complete" && record.path.as_deref() == Some("/shop/agent"))
        .await;
    let again = stand
        .psql("allowed.test", "user=agent dbname=shop", "SELECT 1")
        .await;
    assert_eq!(said(&again).0, "1");

    stand.put(&limit("{bytes_out: 10KB}"));
    let client = stand.client("shop").await;
    let long = format!("SELECT length('{}')", "x".repeat(20_000));
    let refused = client.batch_execute(&long).await.unwrap_err();
    assert_eq!(told(&refused).0, "53400");
}

#[tokio::test]
async fn a_session_that_ends_and_a_gateway_that_stops_are_told_as_a_shutdown() {
    let (stand, _database) = both().await;
    let (client, connection) = stand.log_in("shop", &stand.password()).await.unwrap();
    let ending = async {
        client.batch_execute("SELECT 1").await.unwrap();
        stand.sessions.delete("run-1").unwrap();
    };
    let (ended, ()) = tokio::join!(connection, ending);
    let (code, message) = told(&ended.unwrap_err());
    assert_eq!(code, "57P01");
    assert!(message.contains("the session ended"), "{message}");

    // In the middle of a large answer for which there is no time: the message that has begun is given whole first.
    let roots = Roots::new();
    let database = Database::start(&roots, &NAMES).await;
    let limits = Limits {
        transaction: Duration::ZERO,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, database.port, limits).await;
    stand.put(DATABASE);
    let client = stand.client("shop").await;
    let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)";
    let rows = client.query_raw(rows, Vec::<String>::new()).await.unwrap();
    let mut rows = std::pin::pin!(rows);
    assert!(rows.try_next().await.unwrap().is_some());
    let reading = async {
        loop {
            match rows.try_next().await {
                Ok(Some(row)) => assert_eq!(row.get::<_, String>(0).len(), 1000),
                Ok(None) => panic!("the answer ended before the gateway did"),
                Err(error) => return told(&error),
            }
        }
    };
    let ((code, message), ()) = tokio::join!(reading, stand.gateway.drain());
    assert_eq!(code, "57P01");
    assert!(message.contains("the gateway stops"), "{message}");
}

#[tokio::test]
async fn a_gateway_that_stops_ends_who_rests_at_once_and_lets_transactions_come_to_their_end() {
    let roots = Roots::new();
    let database = Database::start(&roots, &NAMES).await;
    // As long as it takes on a busy machine.
    let limits = Limits {
        transaction: Duration::from_secs(60),
        drain: Duration::from_secs(90),
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, database.port, limits).await;
    stand.put(DATABASE);
    let log_in = async || stand.log_in("shop", &stand.password()).await.unwrap();
    let (_resting, resting_connection) = log_in().await;
    let (busy, busy_connection) = log_in().await;
    let working = async {
        busy.batch_execute("CREATE TABLE kept (number int); BEGIN; INSERT INTO kept VALUES (1)")
            .await
            .unwrap();
        let resting = async {
            let (code, message) = told(&resting_connection.await.unwrap_err());
            assert!(
                code == "57P01" && message.contains("the gateway stops"),
                "{code} {message}"
            );
        };
        // The one that rests is told that the gateway stops: only then the other goes on.
        let going_on = async {
            resting.await;
            busy.batch_execute("INSERT INTO kept SELECT generate_series(2, 100000)")
                .await
                .unwrap();
            let counted = busy.query_one("SELECT count(*) FROM kept", &[]).await.unwrap();
            assert_eq!(counted.get::<_, i64>(0), 100_000);
            busy.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(stand.gateway.drain(), going_on);
    };
    let (ended, ()) = tokio::join!(busy_connection, working);
    assert_eq!(told(&ended.unwrap_err()).0, "57P01");
    let admin = database.admin_of("shop").await;
    let kept = admin.query_one("SELECT count(*) FROM kept", &[]).await.unwrap();
    assert_eq!(kept.get::<_, i64>(0), 100_000);
}

#[tokio::test]
async fn plain_bytes_behind_a_request_for_encryption_are_never_taken_for_encrypted() {
    let (stand, _database) = both().await;
    let mut tunnel = stand.tunnel(&stand.at("allowed.test")).await;
    let start_up = b"\0\0\0\x14\0\x03\0\0user\0agent\0\0";
    let both = [&[0, 0, 0, 8, 4, 210, 22, 47][..], start_up].concat();
    tunnel.write_all(&both).await.unwrap();
    let mut answer = Vec::new();
    // A reset is as good as a close.
    let _closed = tunnel.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"S"), "{answer:?}");
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Malformed);
    assert!(record.reason.contains("unencrypted bytes"), "{}", record.reason);
}

#[tokio::test]
async fn encryption_is_asked_for_in_every_way_that_clients_know() {
    let (stand, _database) = both().await;
    let start_up = b"\0\0\0\x22\0\x03\0\x02user\0agent\0database\0shop\0\0";
    // GSSAPI is declined, a newer minor version is negotiated down, and then the password is asked for.
    let mut tunnel = stand.tunnel(&stand.at("allowed.test")).await;
    tunnel.write_all(&[0, 0, 0, 8, 4, 210, 22, 48]).await.unwrap();
    assert_eq!(tunnel.read_u8().await.unwrap(), b'N');
    tunnel.write_all(start_up).await.unwrap();
    let mut answer = [0; 22];
    tunnel.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer[..14], b"v\0\0\0\x0c\0\x03\0\0\0\0\0\0R");
    drop(tunnel);
    // TLS at once, as PostgreSQL 17's clients may do it.
    let tunnel = stand.tunnel(&stand.at("allowed.test")).await;
    let mut direct = stand
        .tls_over(tunnel, Some("allowed.test"), &["postgresql"])
        .await
        .unwrap();
    assert_eq!(direct.get_ref().1.alpn_protocol(), Some(&b"postgresql"[..]));
    direct.write_all(start_up).await.unwrap();
    assert_eq!(direct.read_u8().await.unwrap(), b'v');
    // A name that is not the dialled one is refused in TLS's own words.
    let mut tunnel = stand.tunnel(&stand.at("allowed.test")).await;
    tunnel.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.unwrap();
    assert_eq!(tunnel.read_u8().await.unwrap(), b'S');
    assert!(stand.tls_over(tunnel, Some("other.test"), &[]).await.is_err());
}

/// Stands between the gateway and a server, with a certificate of its own that the gateway trusts.
async fn between(roots: &Roots, server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = roots.acceptor(&NAMES, &[]);
    let mut trusted = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut roots.pem().as_bytes()) {
        trusted.add(certificate.unwrap()).unwrap();
    }
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(trusted)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut asked = [0; 8];
            client.read_exact(&mut asked).await.unwrap();
            client.write_all(b"S").await.unwrap();
            let mut client = acceptor.accept(client).await.unwrap();
            let mut line = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            line.write_all(&asked).await.unwrap();
            assert_eq!(line.read_u8().await.unwrap(), b'S');
            let name = "allowed.test".try_into().unwrap();
            let mut line = connector.connect(name, line).await.unwrap();
            // Whoever closes first is no matter here.
            let _ended = tokio::io::copy_bidirectional(&mut client, &mut line).await;
        }
    });
    port
}

#[tokio::test]
async fn a_log_in_is_bound_to_its_connection_so_that_nobody_stands_between_gateway_and_server() {
    let roots = Roots::new();
    let database = Database::start(&roots, &NAMES).await;
    let port = between(&roots, database.port).await;
    let stand = Arc::new(Stand::new(&roots, port).await);
    stand.put(DATABASE);
    let query = |name: &str| format!("user=agent dbname={name}");
    let (_, complaint) = said(&stand.psql("allowed.test", &query("shop"), "SELECT 1").await);
    assert!(complaint.contains("channel binding check failed"), "{complaint}");
    assert!(complaint.contains("The server itself says so"), "{complaint}");
    // What is not bound passes: whoever stands there is no stranger to TLS.
    let (answer, complaint) = said(&stand.psql("allowed.test", &query("clear"), "SELECT 1").await);
    assert_eq!(answer, "1", "{complaint}");
}

#[tokio::test]
async fn a_server_without_tls_is_spoken_to_at_a_private_address_and_refused_at_a_public_one() {
    let roots = Roots::new();
    let database = Database::start(&roots, &[]).await;
    // The proxy leads everywhere to the server, whatever address it is asked for.
    let proxy = Proxy::new(database.port, OPEN).await;
    let spec = ParentSpec::read(&proxy.url).unwrap();
    let outlet = |store: &Arc<SecretStore>| Outlet {
        parent: Some(Parent::new(spec, store)),
        ..Outlet::new(Resolver::without_servers())
    };
    let stand = Arc::new(Stand::with_outlet(&roots, database.port, Limits::default(), outlet).await);
    let policy = DATABASE.replacen("127.0.0.0/8", "10.0.0.0/8", 1);
    let ask = async |address: &str| {
        stand.put_hosts("run-1", &policy, &[("allowed.test", address)]);
        said(
            &stand
                .psql("allowed.test", "user=agent dbname=shop", "SELECT 1")
                .await,
        )
    };
    assert_eq!(ask("10.9.9.9").await.0, "1");
    let (answer, complaint) = ask("203.0.113.5").await;
    assert!(
        complaint.contains("`allowed.test` does not speak TLS")
            && complaint.contains("private addresses alone"),
        "{answer}{complaint}"
    );
    let denied = stand.records_of(|record| record.verdict == Verdict::Denied).await;
    assert_eq!(denied[0].credentials_used, Vec::<String>::new());
    let asked = proxy.asked();
    assert!(
        asked.last().unwrap().starts_with("CONNECT 203.0.113.5:"),
        "{asked:?}"
    );
}
