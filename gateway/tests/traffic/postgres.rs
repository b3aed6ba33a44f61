//! The agent logs in to a real PostgreSQL server with a placeholder, and never sees or sends the real password.
use crate::database::{Database, before, both, said};
use crate::origin::{NAMES, Roots};
use crate::stand::SECRET;
use futures_util::{SinkExt, StreamExt, TryStreamExt, future};
use sallyport_gateway::control::types::Verdict;
use tokio_postgres::{AsyncMessage, NoTls};

const FULL: &str = "sslmode=verify-full";

#[tokio::test]
async fn psql_logs_in_with_the_placeholder_and_gets_the_value_back_as_one() {
    let (stand, database) = both().await;
    let password = stand.password();
    for mode in [FULL, "sslmode=disable"] {
        let settings = format!("{mode} user=agent dbname=shop");
        let whoami = stand
            .psql(
                "allowed.test",
                &settings,
                "SELECT current_user, current_database()",
            )
            .await;
        assert_eq!(said(&whoami), ("agent|shop".to_owned(), String::new()), "{mode}");
    }
    let admin = database.admin().await;
    let pair: (String, String) = {
        let row = admin
            .query_one(&format!("SELECT '{SECRET}', '{password}'"), &[])
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_ne!(pair.0, pair.1);
    // Only the server knows how to make the value, so that no statement holds it.
    let (head, tail) = SECRET.split_at(7);
    for statement in [
        format!("SELECT '{head}' || '{tail}'"),
        format!("COPY (SELECT '{head}' || '{tail}') TO STDOUT"),
        format!("SELECT '{head}' || '{tail}' AS once, repeat('x', 20000)"),
    ] {
        let settings = format!("{FULL} user=agent dbname=shop");
        let (out, complaint) = said(&stand.psql("allowed.test", &settings, &statement).await);
        assert_eq!(complaint, "");
        assert!(
            out.starts_with(&password) && !out.contains(SECRET),
            "{statement}: {out}"
        );
    }
    let settings = format!("{FULL} user=agent dbname=shop");
    let raising = format!("DO $$ BEGIN RAISE EXCEPTION 'it is %', '{head}' || '{tail}'; END $$");
    let (_, complaint) = said(&stand.psql("allowed.test", &settings, &raising).await);
    assert!(complaint.contains(&format!("it is {password}")), "{complaint}");
    let records = stand.records(12).await;
    assert!(!format!("{records:?}").contains(SECRET));
    let ended: Vec<_> = records.iter().filter(|record| record.ending != "open").collect();
    assert!(ended.iter().all(|record| record.kind == "postgres"
        && record.verdict == Verdict::Allowed
        && record.method.as_deref() == Some("LOGIN")
        && record.path.as_deref() == Some("/shop/agent")
        && record.credentials_used == ["db"]
        && record.ending == "complete"
        && record.bytes_in > 0
        && record.bytes_out > 0));
    assert_eq!(
        ended.iter().map(|record| record.tls).collect::<Vec<_>>()[..2],
        [Some(true), Some(false)]
    );
    assert!(ended.last().unwrap().credentials_redacted == ["db"]);
}

#[tokio::test]
async fn a_refused_log_in_is_explained_in_words_that_psql_prints() {
    let (stand, _database) = both().await;
    for (settings, needles) in [
        (
            "user=agent dbname=archive",
            &[
                "FATAL:  sallyport: ",
                "archive",
                "DETAIL:  Rule `no-archive`.",
                "HINT:  Read the copy in `shop`.",
            ][..],
        ),
        (
            "user=postgres dbname=shop",
            &["FATAL:  sallyport: ", "postgres", "DETAIL:  Rule `default`."],
        ),
        (
            "user=agent dbname=shop replication=database",
            &["replication", "every database"],
        ),
        (
            &format!("user=agent dbname=shop password={SECRET}"),
            &[
                "the password is not the placeholder",
                "HINT:  Log in with the placeholder",
            ],
        ),
        (
            "user=agent dbname=shop password=guessed",
            &["the password is not the placeholder"],
        ),
    ] {
        let settings = format!("{FULL} {settings}");
        let (out, complaint) = said(&stand.psql("allowed.test", &settings, "SELECT 1").await);
        assert_eq!(out, "", "{settings}");
        for needle in needles {
            assert!(complaint.contains(needle), "{settings}: {complaint}");
        }
        let record = stand.records(1).await.pop().unwrap();
        assert!(
            complaint.contains(&format!("(decision {})", record.id)),
            "{complaint}\n{record:?}"
        );
        assert_eq!(record.kind, "postgres");
        assert!(
            matches!(record.verdict, Verdict::Denied | Verdict::Malformed),
            "{record:?}"
        );
    }
    let (_, complaint) = said(
        &stand
            .psql("denied.test", "user=agent dbname=shop", "SELECT 1")
            .await,
    );
    assert!(
        complaint.contains("sallyport: ") && complaint.contains("denied.test"),
        "{complaint}"
    );
}

#[tokio::test]
async fn every_kind_of_log_in_that_servers_ask_for_is_answered_with_the_real_password() {
    let roots = Roots::new();
    let database = Database::start(&roots, &NAMES).await;
    let stand = before(&roots, &database).await;
    for (settings, role) in [
        ("user=hashed dbname=hashed", "hashed"),
        ("user=agent dbname=clear", "agent"),
        ("user=agent dbname=trusted", "agent"),
    ] {
        let settings = format!("{FULL} {settings}");
        let out = stand.psql("allowed.test", &settings, "SELECT current_user").await;
        assert_eq!(said(&out), (role.to_owned(), String::new()), "{settings}");
    }
    let used: Vec<_> = stand
        .records(6)
        .await
        .into_iter()
        .filter(|record| record.ending != "open")
        .collect();
    assert_eq!(
        used.iter()
            .filter(|record| record.credentials_used == ["db"])
            .count(),
        2,
        "{used:#?}"
    );

    let plain = Database::start(&roots, &[]).await;
    let stand = before(&roots, &plain).await;
    let out = stand
        .psql("allowed.test", "user=agent dbname=shop", "SELECT current_user")
        .await;
    assert_eq!(
        said(&out),
        ("agent".to_owned(), String::new()),
        "private, so that plain is fine"
    );
    let (_, complaint) = said(
        &stand
            .psql("allowed.test", "user=agent dbname=clear", "SELECT 1")
            .await,
    );
    assert!(
        complaint.contains("in clear on an unencrypted connection"),
        "{complaint}"
    );
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_named_and_gets_nothing() {
    let (roots, others) = (Roots::new(), Roots::new());
    for (database, why) in [
        (Database::start(&others, &NAMES).await, "is not trusted"),
        (
            Database::start(&roots, &["elsewhere.test"]).await,
            "it is for another name",
        ),
    ] {
        let stand = before(&roots, &database).await;
        let (_, complaint) = said(
            &stand
                .psql("allowed.test", "user=agent dbname=shop", "SELECT 1")
                .await,
        );
        assert!(complaint.contains(why), "{complaint}");
        let record = stand.records(1).await.pop().unwrap();
        assert_eq!(
            (record.verdict, &record.credentials_used[..]),
            (Verdict::UpstreamFailed, &[][..])
        );
    }
    // The server's own refusal is told from the gateway's.
    let database = Database::start(&roots, &NAMES).await;
    let stand = before(&roots, &database).await;
    database
        .admin()
        .await
        .batch_execute("ALTER ROLE agent PASSWORD 'another-one'")
        .await
        .unwrap();
    let (_, complaint) = said(
        &stand
            .psql("allowed.test", "user=agent dbname=shop", "SELECT 1")
            .await,
    );
    assert!(
        complaint.contains("password authentication failed for user \"agent\""),
        "{complaint}"
    );
    assert!(
        complaint.contains("in answer to the value of credential `db`"),
        "{complaint}"
    );
}

#[tokio::test]
async fn copies_cursors_pipelines_and_large_results_pass() {
    let (stand, _database) = both().await;
    let client = stand.client("shop").await;
    client
        .batch_execute("CREATE TABLE things (id int, name text)")
        .await
        .unwrap();
    let sink = client.copy_in("COPY things FROM STDIN").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    let mut rows = String::new();
    for id in 0..50_000 {
        rows.push_str(&format!("{id}\tthing number {id}\n"));
    }
    for piece in rows.as_bytes().chunks(7001) {
        sink.send(bytes::Bytes::copy_from_slice(piece)).await.unwrap();
    }
    assert_eq!(sink.as_mut().finish().await.unwrap(), 50_000);
    let copied = client.copy_out("COPY things TO STDOUT").await.unwrap();
    let copied: Vec<bytes::Bytes> = copied.try_collect().await.unwrap();
    assert_eq!(copied.concat(), rows.as_bytes());
    let statement = client
        .prepare("SELECT name FROM things WHERE id = $1")
        .await
        .unwrap();
    let asking = (0..200).map(|id: i32| {
        let (client, statement) = (&client, &statement);
        async move {
            client
                .query_one(statement, &[&id])
                .await
                .unwrap()
                .get::<_, String>(0)
        }
    });
    for (id, name) in future::join_all(asking).await.into_iter().enumerate() {
        assert_eq!(name, format!("thing number {id}"));
    }
    let large = client
        .query_one("SELECT repeat('0123456789', 2000000)", &[])
        .await
        .unwrap();
    assert_eq!(large.get::<_, String>(0).len(), 20_000_000);
    let gone = client.query_one("SELECT * FROM nothing", &[]).await.unwrap_err();
    assert_eq!(gone.code().unwrap().code(), "42P01", "and the connection goes on");
    assert_eq!(
        client.query("SELECT * FROM things", &[]).await.unwrap().len(),
        50_000
    );
}

#[tokio::test]
async fn notifications_come_while_the_client_waits() {
    let (stand, _database) = both().await;
    let (listener, mut connection) = stand.log_in("shop", &stand.password()).await.unwrap();
    let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
    let talker = stand.client("shop").await;
    let (head, tail) = SECRET.split_at(7);
    let telling = async {
        listener.batch_execute("LISTEN news").await.unwrap();
        talker
            .batch_execute(&format!("SELECT pg_notify('news', '{head}' || '{tail}')"))
            .await
            .unwrap();
    };
    let hearing = async {
        loop {
            match messages.next().await.unwrap().unwrap() {
                AsyncMessage::Notification(news) => return news.payload().to_owned(),
                _ => continue,
            }
        }
    };
    let (payload, ()) = tokio::join!(hearing, telling);
    assert_eq!(payload, stand.password());
}

#[tokio::test]
async fn a_query_is_cancelled_by_its_own_session_and_by_no_other() {
    let (stand, database) = both().await;
    let client = stand.client("shop").await;
    let admin = database.admin().await;
    let token = client.cancel_token();
    let sleeping = client.batch_execute("SELECT pg_sleep(600)");
    let cancelling = async {
        let asleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while admin.query(asleep, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        stand.put_for("run-2", crate::database::DATABASE);
        let view = stand.sessions.view("run-2", &stand.ca_pem).unwrap();
        let authorization = crate::stand::authorization("run-2", &view.proxy_token);
        let foreign = stand.tunnel_as(&stand.at("allowed.test"), &authorization).await;
        token.cancel_query_raw(foreign, NoTls).await.unwrap();
        stand
            .records_of(|record| {
                record.method.as_deref() == Some("CANCEL") && record.verdict == Verdict::Denied
            })
            .await;
        assert!(
            !admin.query(asleep, &[]).await.unwrap().is_empty(),
            "it sleeps on"
        );
        let own = stand.tunnel(&stand.at("allowed.test")).await;
        token.cancel_query_raw(own, NoTls).await.unwrap();
    };
    let (slept, ()) = tokio::join!(sleeping, cancelling);
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
    client.batch_execute("SELECT 1").await.unwrap();
}
