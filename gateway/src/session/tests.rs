//! Sessions over restarts, broken policies, grants and their uses.
use super::*;
use crate::audit::Sink;
use crate::control::types::{AccessAnswer, AccessRequest, AuditQuery};
use crate::intake::Doors;
use crate::limits::Limits;
use crate::secret::source::Variables;
use crate::secret::testing::get;
use crate::secret::{SecretStore, Sources, Value};
use crate::turns::Turns;
use sallyport_policy::{CanonicalPath, PolicyText, Wanted};
use std::path::Path;

const POLICY: &str = r#"
version: 1
name: test
credentials:
  forge:
    from: {store: forge}
    hosts: [allowed.test]
    in: [bearer, basic]
    env: FORGE_TOKEN
rules:
  - id: forge
    to: {host: allowed.test, methods: [GET, POST]}
    use: [forge]
    effect: allow
  - id: docs
    to: {host: docs.test, methods: [GET]}
    effect: deny
    grantable: {by: rule, uses: 2, expires: 1h}
  - id: paste
    to: {host: paste.test}
    effect: deny
"#;

fn spec(policy: &str) -> SessionSpec {
    SessionSpec {
        who: Who {
            run: "run-1".into(),
            user: "ada".into(),
            ..Who::default()
        },
        policies: vec![PolicyText {
            name: "test.yaml".into(),
            text: policy.into(),
        }],
        hosts: BTreeMap::from([("Allowed.Test.".to_owned(), "127.0.0.1".parse().unwrap())]),
        upstream_roots_pem: String::new(),
    }
}

fn open(folder: &Path) -> (Arc<Sessions>, Sink) {
    let store = Arc::new(SecretStore::open(folder).unwrap());
    if store.names().unwrap().is_empty() {
        store
            .set("forge", Value::new(b"ghp_Ab3dEf6hIj9lMn0pQr2tUv4x".to_vec()))
            .unwrap();
    }
    let sources = Sources::new(
        store,
        Variables::from_environment(std::iter::empty()),
        folder.join("files"),
    );
    let sink = Sink::open(folder).unwrap();
    (
        Sessions::open(folder, Arc::new(sources), sink.clone()).unwrap(),
        sink,
    )
}

fn allowed(session: &Session, host: &str) -> bool {
    matches!(session.decide(&get(host)).decision, Decision::Allow(_))
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
        why: "to read".into(),
    }
}

#[tokio::test]
async fn a_session_is_the_same_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let AccessAnswer::Granted { grant } = sessions.access("run-1", &wish("docs.test")).await.unwrap() else {
        panic!("not granted");
    };
    assert!(allowed(&sessions.by_id("run-1").unwrap(), "docs.test"));
    let before = sessions.view("run-1", "CA").unwrap();
    drop((sessions, sink));
    let (sessions, _sink) = open(folder.path());
    assert_eq!(sessions.view("run-1", "CA").unwrap(), before);
    let session = sessions.by_proxy_password("run-1", &before.proxy_token).unwrap();
    assert_eq!(session.grants()[0].id, grant.id);
    assert_eq!(
        session.grants()[0].uses,
        Some(1),
        "the use before the restart counts"
    );
    assert!(allowed(&session, "docs.test"));
    assert!(!allowed(&session, "docs.test"), "both uses are spent");
    assert!(allowed(&session, "allowed.test"));
    assert_eq!(
        session.hosts().get("allowed.test"),
        Some(&"127.0.0.1".parse().unwrap())
    );
}

#[tokio::test]
async fn a_second_put_keeps_placeholders_password_and_grants() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let before = sessions.view("run-1", "").unwrap();
    let session = sessions.by_id("run-1").unwrap();
    sessions.access("run-1", &wish("docs.test")).await.unwrap();
    sessions
        .put(
            "run-1",
            spec(&POLICY.replace("host: paste.test", "host: paste.other.test")),
        )
        .unwrap();
    let after = sessions.view("run-1", "").unwrap();
    assert_eq!(
        (&after.proxy_token, &after.credentials),
        (&before.proxy_token, &before.credentials)
    );
    assert_ne!(after.policy_hash, before.policy_hash);
    assert_eq!(
        session.policy_hash(),
        after.policy_hash,
        "whoever holds the session sees the new policy"
    );
    assert!(allowed(&session, "docs.test"));
}

#[tokio::test]
async fn a_broken_policy_leaves_the_one_before_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let error = sessions
        .put("run-1", spec("version: 1\nrulez: []\n"))
        .unwrap_err();
    assert!(
        matches!(&error, SessionError::Policy { problems, kept: true } if !problems.is_empty()),
        "{error}"
    );
    assert!(allowed(&sessions.by_id("run-1").unwrap(), "allowed.test"));
    let error = sessions
        .put("run-2", spec("version: 1\nrulez: []\n"))
        .unwrap_err();
    assert!(
        matches!(error, SessionError::Policy { kept: false, .. }),
        "{error}"
    );
    assert!(sessions.by_id("run-2").is_none());
}

#[tokio::test]
async fn a_removed_session_is_closed_and_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let session = sessions.by_id("run-1").unwrap();
    sessions.delete("run-1").unwrap();
    sessions.delete("run-1").unwrap();
    assert!(session.closed().is_cancelled());
    assert!(sessions.by_id("run-1").is_none());
    drop((sessions, session, sink));
    assert!(open(folder.path()).0.list().is_empty());
}

#[tokio::test]
async fn names_without_a_session_are_gone_after_a_start_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let own = sessions.by_id("run-1").unwrap().names_file();
    let names = own.parent().unwrap();
    for id in ["run-1", "run-2", "run-1.names"] {
        std::fs::write(names.join(format!("{id}.names")), "00001 a.test\n").unwrap();
    }
    drop((sessions, sink));
    let (sessions, _sink) = open(folder.path());
    let left: Vec<_> = std::fs::read_dir(names)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(left, std::slice::from_ref(&own));
    sessions.delete("run-1").unwrap();
    assert_eq!(std::fs::read_dir(names).unwrap().count(), 0);
}

#[tokio::test]
async fn who_comes_late_for_a_removed_session_leaves_no_names_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let session = sessions.by_id("run-1").unwrap();
    let doors = Doors::new(
        Arc::new(Limits::default()),
        Turns::new(1),
        CancellationToken::new(),
    );
    doors.of(&session).names.addresses("a.test").unwrap();
    assert!(session.names_file().exists());
    sessions.delete("run-1").unwrap();
    doors.of(&session).names.addresses("b.test").unwrap();
    assert!(!session.names_file().exists());
    // One of the same id begins anew.
    sessions.put("run-1", spec(POLICY)).unwrap();
    let (four, _) = doors.of(&session).names.addresses("b.test").unwrap();
    let new = sessions.by_id("run-1").unwrap();
    assert_eq!(doors.of(&new).names.name(four.into()), None);
}

#[tokio::test]
async fn only_what_the_policy_grants_is_granted_and_every_wish_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let first = sessions.access("run-1", &wish("docs.test")).await.unwrap();
    assert_eq!(
        sessions.access("run-1", &wish("docs.test")).await.unwrap(),
        first,
        "asking again gives the same grant"
    );
    for host in ["paste.test", "allowed.test", "nowhere.test", "not a host"] {
        let answer = sessions.access("run-1", &wish(host)).await.unwrap();
        assert!(
            matches!(answer, AccessAnswer::Refused { .. }),
            "{host}: {answer:?}"
        );
    }
    assert!(matches!(
        sessions.access("run-2", &wish("docs.test")).await,
        Err(SessionError::Unknown(_))
    ));
    let records = sink.query(AuditQuery::default()).await.unwrap();
    assert_eq!(records.len(), 6);
    assert!(
        records
            .iter()
            .all(|record| record.kind == "access" && record.session == "run-1")
    );
}

#[tokio::test]
async fn an_expired_grant_is_neither_taken_nor_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let mut grant = Grant {
        credential: None,
        id: String::new(),
        rule: "docs".into(),
        host: "docs.test".into(),
        port: 443,
        methods: Vec::new(),
        path: None,
        uses: None,
        expires_at: jiff::Timestamp::now(),
        by: "ada".into(),
    };
    assert!(matches!(
        sessions.grant("run-1", grant.clone()).await,
        Err(SessionError::Malformed(_))
    ));
    grant.expires_at = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(500);
    let given = sessions.grant("run-1", grant).await.unwrap();
    let session = sessions.by_id("run-1").unwrap();
    assert!(session.grant_expiry(&given.id).is_some());
    let records = sink.query(AuditQuery::default()).await.unwrap();
    assert!(records[0].reason.contains("granted by `ada`"), "{records:?}");
    tokio::time::sleep(std::time::Duration::from_millis(550)).await;
    assert_eq!(session.grants(), []);
    assert!(!allowed(&session, "docs.test"));
}

#[tokio::test]
async fn a_missing_and_a_short_value_are_warnings_and_a_later_value_is_picked_up() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _sink) = open(folder.path());
    sessions
        .put("run-1", spec(&POLICY.replace("store: forge", "store: other")))
        .unwrap();
    let view = sessions.view("run-1", "").unwrap();
    assert_eq!(view.credentials, []);
    assert!(
        view.warnings
            .iter()
            .any(|warning| warning.contains("secret set other")),
        "{:?}",
        view.warnings
    );
    let store = SecretStore::open(folder.path()).unwrap();
    store
        .set(
            "other",
            Value::new(b"sk-0123456789abcdefABCDEF0123456789".to_vec()),
        )
        .unwrap();
    sessions.refresh_secrets().unwrap();
    let view = sessions.view("run-1", "").unwrap();
    let placeholder = view.credentials[0].placeholder.clone();
    assert!(
        placeholder.starts_with("sk-") && placeholder.len() == 35,
        "{placeholder}"
    );
    store
        .set("other", Value::new(b"a value of quite another shape".to_vec()))
        .unwrap();
    sessions.refresh_secrets().unwrap();
    assert_eq!(
        sessions.view("run-1", "").unwrap().credentials[0].placeholder,
        placeholder,
        "shown for ever"
    );
}

#[tokio::test]
async fn what_a_policy_names_and_this_gateway_has_not_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _) = open(folder.path());
    let policy = "version: 1\ncredentials:\n  odd: {from: {vault: kv/a, field: b}, hosts: [a.test], in: [\"json:/token\", \"form:key\", path, bearer]}\nrules:\n  - {id: a, to: {host: a.test}, use: [odd], effect: allow}\n";
    sessions.put("run-1", spec(policy)).unwrap();
    let warnings = sessions.view("run-1", "").unwrap().warnings.join("\n");
    let expected = "credential `odd` is not bound: this gateway has no Vault";
    assert!(warnings.contains(expected), "{warnings}");
    assert!(!warnings.contains("is not put into"), "{warnings}");
}

#[tokio::test]
async fn ids_hosts_and_certificates_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _sink) = open(folder.path());
    assert!(matches!(
        sessions.put("a:b", spec(POLICY)),
        Err(SessionError::Malformed(_))
    ));
    assert!(matches!(
        sessions.put("", spec(POLICY)),
        Err(SessionError::Malformed(_))
    ));
    let mut bad = spec(POLICY);
    bad.upstream_roots_pem = "not a certificate".into();
    assert!(matches!(
        sessions.put("run", bad),
        Err(SessionError::Malformed(_))
    ));
    let mut bad = spec(POLICY);
    bad.hosts.insert("127.0.0.1".into(), "127.0.0.1".parse().unwrap());
    assert!(matches!(
        sessions.put("run", bad),
        Err(SessionError::Malformed(_))
    ));
    assert!(sessions.by_proxy_password("run", "").is_none());
}

#[tokio::test]
async fn a_wrong_proxy_password_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, _sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    sessions.put("run-2", spec(POLICY)).unwrap();
    let token = sessions.view("run-1", "").unwrap().proxy_token;
    assert!(sessions.by_proxy_password("run-1", &token).is_some());
    for (user, password) in [
        ("run-2", token.as_str()),
        ("run-1", ""),
        ("run-1", &token[1..]),
        ("run-3", &token),
    ] {
        assert!(sessions.by_proxy_password(user, password).is_none(), "{user}");
    }
}

#[test]
fn a_damaged_state_file_is_named() {
    for content in [&b"no database at all"[..], &[0; 4096]] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("sessions.redb"), content).unwrap();
        let error = Keeper::open(folder.path()).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("sessions.redb") && error.contains("move the file away"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn nothing_printable_of_a_session_holds_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    let session = sessions.by_id("run-1").unwrap();
    let secrets = session.secrets();
    let text = format!(
        "{session:?} {secrets:?} {:?} {:?} {:?} {:?} {:#?} {sessions:?}",
        secrets.redactor(),
        secrets.body_guard(),
        secrets.bindings(),
        secrets.bindings()[0].value,
        sessions.view("run-1", "").unwrap(),
    );
    assert!(!text.contains("Ab3dEf6hIj9l"), "{text}");
    let wish = AccessRequest {
        why: "I found ghp_Ab3dEf6hIj9lMn0pQr2tUv4x".into(),
        ..wish("docs.test")
    };
    sessions.access("run-1", &wish).await.unwrap();
    sink.flush().await.unwrap();
    let files = |folder: &Path| {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
    };
    let names = folder.path().join("names");
    for path in files(folder.path()).chain(files(&names)) {
        if path == names {
            continue;
        }
        let content = std::fs::read(&path).unwrap();
        assert!(
            memchr::memmem::find(&content, b"Ab3dEf6hIj9l").is_none(),
            "{}",
            path.display()
        );
    }
}

#[tokio::test]
async fn the_log_is_told_whose_a_session_is_once_for_each_change() {
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(POLICY)).unwrap();
    sessions.record_facts("run-1").await.unwrap();
    sessions.put("run-1", spec(POLICY)).unwrap();
    sessions.record_facts("run-1").await.unwrap();
    let mut moved = spec(POLICY);
    moved.who.team = "web".into();
    sessions.put("run-1", moved.clone()).unwrap();
    sessions.record_facts("run-1").await.unwrap();
    let records = sink.query(AuditQuery::default()).await.unwrap();
    let told: Vec<_> = records.iter().map(|record| record.who.as_deref()).collect();
    assert_eq!(told, [Some(&moved.who), Some(&spec(POLICY).who)]);
    assert!(records.iter().all(|record| {
        record.kind == "session"
            && record.session == "run-1"
            && record.policy_hash == sessions.by_id("run-1").unwrap().policy_hash()
    }));
    assert!(matches!(
        sessions.record_facts("run-2").await,
        Err(SessionError::Unknown(_))
    ));
}

#[tokio::test]
async fn what_a_log_in_gave_is_forgotten_at_a_restart_and_its_placeholder_goes_nowhere() {
    const LOG_IN: &str = r#"
version: 1
credentials:
  api: {from: {answer: auth.test, path: /token, json: /token}, hosts: [allowed.test], in: [bearer]}
rules: [{id: all, to: {host: [allowed.test, auth.test]}, use: [api], effect: allow}]
"#;
    let folder = tempfile::tempdir().unwrap();
    let (sessions, sink) = open(folder.path());
    sessions.put("run-1", spec(LOG_IN)).unwrap();
    let session = sessions.by_id("run-1").unwrap();
    let (at, path) = (
        get("auth.test").destination,
        CanonicalPath::parse("/token").unwrap(),
    );
    let [(name, parts)] = &session.log_ins(&at, &path)[..] else {
        panic!("no log-in")
    };
    assert!(
        session
            .log_ins(&get("allowed.test").destination, &path)
            .is_empty()
    );
    let body = br#"{"token": "tok_Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa"}"#;
    let found =
        crate::secret::capture::captured(name, parts, (http::StatusCode::OK, &http::HeaderMap::new()), body)
            .unwrap();
    let secrets = sessions.capture(&session, found).unwrap();
    let text = secrets.captured_as("api").next().unwrap().placeholders[0].clone();
    let sent = |session: &Session| {
        let request = http::Request::builder()
            .uri("/")
            .header("authorization", format!("Bearer {text}"));
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let Decision::Allow(permit) = session.decide(&get("allowed.test")).decision else {
            panic!("allowed")
        };
        let outbound = session.secrets().outbound(&permit, true, &mut head);
        outbound
            .map(|_| head.headers["authorization"].clone())
            .map_err(|leak| leak.sentence)
    };
    assert_eq!(
        sent(&session).unwrap(),
        "Bearer tok_Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa"
    );
    // They stay when the policy is put again, as it is or changed.
    sessions
        .put("run-1", spec(&LOG_IN.replace("id: all", "id: every")))
        .unwrap();
    assert!(sent(&session).is_ok());
    drop((session, secrets));
    drop((sessions, sink));
    let (sessions, _sink) = open(folder.path());
    let session = sessions.by_id("run-1").unwrap();
    let refused = sent(&session).unwrap_err();
    assert!(refused.contains("log in again"), "{refused}");
}
