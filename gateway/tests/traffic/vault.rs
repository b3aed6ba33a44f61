//! The real OpenBao: values of the KV engines, what is made for one run alone, leases that end before the run, outages (case S08).
use crate::bao::{Bao, Link, keeper};
use crate::database::Database;
use crate::origin::{NAMES, Origin, Roots, full};
use crate::stand::Stand;
use http::Response;
use sallyport_gateway::limits::Limits;
use sallyport_gateway::secret::live::Unread;
use sallyport_gateway::secret::{SecretStore, Value};
use sallyport_policy::{Policy, PolicyText, Who};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::{Config, NoTls};

const FIRST: &str = "vk-Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f";
const SECOND: &str = "vk-Zz9yXx8wVv7uTt6sRr5qPp4oNn3mLl2k";

/// Tries again soon, so that tests need not wait.
fn limits() -> Limits {
    Limits {
        secret_retry: Duration::from_millis(100),
        secret_retry_longest: Duration::from_millis(300),
        secret_call: Duration::from_secs(2),
        ..Limits::default()
    }
}

const MODEL: &str = r#"
version: 1
credentials:
  token: {from: {vault: secret/agents/model, field: key}, hosts: [allowed.test], in: [bearer], ttl: 1s}
  older: {from: {vault: old/agents/model, field: key}, hosts: [allowed.test], in: ["header:x-key"]}
  admin: {from: {vault: secret/admin/root, field: key}, hosts: [allowed.test], in: ["header:x-admin"]}
  other: {from: {vault: secret/agents/model, field: other}, hosts: [allowed.test], in: ["header:x-other"]}
  own: {from: {store: vault-secret-id}, hosts: [allowed.test], in: ["header:x-own"]}
  certificate: {from: {vault: pki/issue/agents, field: pem}, hosts: [store.test], in: [client-certificate]}
rules:
  - {id: all, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET], path: "/**", private: true}, use: [token, older, admin, other, own], effect: allow}
  - {id: store, to: {host: [store.test, 127.0.0.0/8], port: PORT, methods: [GET], private: true}, use: [certificate], effect: allow}
"#;

/// Echoes what came as `authorization`, and holds nothing back.
async fn echo(roots: &Roots) -> Origin {
    Origin::http(roots, &["http/1.1"], |request| async move {
        let sent = request.headers().get("authorization").cloned();
        let sent = sent
            .map(|sent| sent.to_str().unwrap().to_owned())
            .unwrap_or_default();
        // One that it got earlier comes back too, as from a log.
        Response::new(full(format!("{sent} and once {FIRST}")))
    })
    .await
}

async fn get(stand: &Stand, placeholder: &str) -> String {
    let at = stand.at("allowed.test");
    let request = format!(
        "GET /v HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {placeholder}\r\n\r\n"
    );
    stand.raw("allowed.test", &request).await
}

/// Asks until the answer fits, for some seconds.
async fn get_until(stand: &Stand, placeholder: &str, fits: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let answer = get(stand, placeholder).await;
        if fits(&answer) {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(8), "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_value_in_vault_is_used_followed_when_it_changes_and_not_used_when_its_time_is_over() {
    let bao = Bao::start().await;
    bao.post(
        "secret/data/agents/model",
        json!({"data": {"key": FIRST, "note": "for models"}}),
    )
    .await;
    bao.post(
        "sys/mounts/old",
        json!({"type": "kv", "options": {"version": "1"}}),
    )
    .await;
    bao.post("old/agents/model", json!({"key": SECOND})).await;
    bao.post("sys/mounts/pki", json!({"type": "pki"})).await;
    bao.post(
        "pki/root/generate/internal",
        json!({"common_name": "agents.test"}),
    )
    .await;
    bao.post(
        "pki/roles/agents",
        json!({"allowed_domains": "agents.test", "allow_subdomains": true}),
    )
    .await;
    let wrapped = bao
        .role("20m", "20m", json!({"secret_id_num_uses": 1}), true)
        .await;
    let link = Link::to(bao.port).await;
    let yaml = link.yaml(
        true,
        "allow: [secret/agents/*, old/agents/model, pki/issue/agents]\n  issue: {pki/issue/agents: {common-name: \"${run}.agents.test\", ttl: 1h}}",
    );
    let roots = Roots::new();
    let origin = echo(&roots).await;
    let stand = Stand::with_fetching(&roots, origin.port, limits(), |folder, store, limits| {
        store
            .set("vault-secret-id", Value::new(wrapped.into_bytes()))
            .unwrap();
        Some(keeper(folder, store, limits, &yaml))
    })
    .await;
    stand.put(MODEL);
    stand.sessions.settled("run-1").await;
    let view = stand.sessions.view("run-1", "").unwrap();
    let named = |name: &str| view.credentials.iter().find(|one| one.name == name);
    let placeholder = named("token")
        .unwrap_or_else(|| panic!("{:?}", view.warnings))
        .placeholder
        .clone();
    assert!(
        named("older").is_some() && named("admin").is_none(),
        "{:?}",
        view.warnings
    );
    let warned = |parts: &[&str]| {
        let fits = |text: &String| parts.iter().all(|part| text.contains(part));
        assert!(view.warnings.iter().any(fits), "{parts:?}: {:?}", view.warnings);
    };
    warned(&["`admin`", "secret/admin/root", "vault.allow"]);
    warned(&["`other`", "no field `other`", "`key`, `note`"]);
    warned(&["`own`", "no policy may name it"]);
    assert!(
        !view.warnings.iter().any(|text| text.contains("certificate")),
        "{:?}",
        view.warnings
    );

    let answer = get(&stand, &placeholder).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && !answer.contains(FIRST),
        "{answer}"
    );
    assert!(origin.seen().pop().unwrap().contains(&format!("Bearer {FIRST}")));
    // Another value: the placeholder stays, and the one before is still taken out.
    bao.post("secret/data/agents/model", json!({"data": {"key": SECOND}}))
        .await;
    let followed = |_: &str| {
        origin
            .seen()
            .pop()
            .is_some_and(|head| head.contains(&format!("Bearer {SECOND}")))
    };
    let answer = get_until(&stand, &placeholder, followed).await;
    assert!(!answer.contains(FIRST) && !answer.contains(SECOND), "{answer}");
    // Vault is gone: used to its end, then refused with words, never sent.
    link.cut(true);
    // For a moment it is being fetched, and nobody knows yet what is wrong.
    let refused = |answer: &str| answer.starts_with("HTTP/1.1 503") && answer.contains("cannot be reached");
    let answer = get_until(&stand, &placeholder, refused).await;
    assert!(
        answer.to_lowercase().contains("\r\nretry-after: 1\r\n"),
        "{answer}"
    );
    assert!(answer.contains("credential `token`"), "{answer}");
    let seen = origin.seen().len();
    link.cut(false);
    get_until(&stand, &placeholder, |answer| answer.starts_with("HTTP/1.1 200")).await;
    assert_eq!(origin.seen().len(), seen + 1, "what was refused did not go out");
    let told = stand.records_until(2, |record| record.kind == "secret").await;
    let told = format!("{told:?}");
    assert!(
        told.contains("cannot be reached") && !told.contains(SECOND),
        "{told}"
    );
}

const SHOP: &str = r#"
version: 1
credentials:
  user: {from: {vault: database/creds/agents, field: username}, hosts: [allowed.test], in: [password], env: PGUSER}
  pass: {from: {vault: database/creds/agents, field: password}, hosts: [allowed.test], in: [password], env: PGPASSWORD}
rules:
  - {id: shop, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: postgres, database: shop, private: true}, use: [user, pass], effect: allow}
"#;

const CREATE: &str = "CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'";

/// How a run with short leases goes.
struct Plan {
    lease: (&'static str, &'static str),
    token: (&'static str, &'static str),
    outage: (Duration, Duration),
    every: Duration,
    run: Duration,
}

/// Logs in again and again with roles that Vault makes, through an outage, and sees all of them gone in the end.
async fn leases_end_before_the_run(plan: Plan) {
    let bao = Bao::start().await;
    let roots = Roots::new();
    let database = Database::start(&roots, &NAMES).await;
    bao.post("sys/mounts/database", json!({"type": "database"})).await;
    let url = format!(
        "postgresql://{{{{username}}}}@127.0.0.1:{}/postgres?sslmode=disable",
        database.port
    );
    let connection = json!({"plugin_name": "postgresql-database-plugin", "allowed_roles": "agents", "connection_url": url, "username": "postgres"});
    bao.post("database/config/shop", connection).await;
    let (ttl, longest) = plan.lease;
    let role =
        json!({"db_name": "shop", "creation_statements": CREATE, "default_ttl": ttl, "max_ttl": longest});
    bao.post("database/roles/agents", role).await;
    let secret_id = bao.role(plan.token.0, plan.token.1, json!({}), false).await;
    let link = Link::to(bao.port).await;
    let yaml = link.yaml(false, "allow: [database/creds/agents]");
    let stand = Stand::with_fetching(&roots, database.port, limits(), |folder, store, limits| {
        store
            .set("vault-secret-id", Value::new(secret_id.into_bytes()))
            .unwrap();
        Some(keeper(folder, store, limits, &yaml))
    })
    .await;
    stand.put(SHOP);
    stand.sessions.settled("run-1").await;
    let view = stand.sessions.view("run-1", "").unwrap();
    let of = |name: &str| {
        view.credentials
            .iter()
            .find(|one| one.name == name)
            .unwrap()
            .placeholder
            .clone()
    };
    let (user, password) = (of("user"), of("pass"));
    let admin = database.admin().await;
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'v-%'";

    let began = Instant::now();
    let (outage, back) = plan.outage;
    let (mut worked, mut refused) = (0, 0);
    while began.elapsed() < plan.run {
        let at = began.elapsed();
        link.cut((outage..back).contains(&at));
        let mut config = Config::new();
        config.user(&user).dbname("shop").password(&password);
        let tunnel = stand.tunnel(&stand.at("allowed.test")).await;
        match config.connect_raw(tunnel, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                let row = client.query_one("SELECT current_user", &[]).await.unwrap();
                let shown: String = row.get(0);
                let known = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{shown}'");
                let known: i64 = admin.query_one(&known, &[]).await.unwrap().get(0);
                assert_eq!(known, 0, "the role's real name was shown: {shown}");
                worked += 1;
            }
            Err(error) => {
                let until = back + Duration::from_secs(1);
                assert!((outage..until).contains(&at), "at {at:?}: {error:?}");
                let told = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
                assert_eq!(told.code().code(), "57P03", "{told:?}");
                refused += 1;
            }
        }
        tokio::time::sleep(plan.every).await;
    }
    assert!(worked > 10, "{worked} log-ins worked, {refused} were refused");
    let made: i64 = admin.query_one(roles, &[]).await.unwrap().get(0);
    assert!(made > 0);
    let after = stand.sessions.view("run-1", "").unwrap();
    assert_eq!(after.credentials[0].placeholder, user, "the placeholder stays");
    stand.sessions.delete("run-1").unwrap();
    let ended = Instant::now();
    loop {
        let left: i64 = admin.query_one(roles, &[]).await.unwrap().get(0);
        if left == 0 {
            break;
        }
        assert!(ended.elapsed() < Duration::from_secs(10), "{left} roles are left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn no_use_fails_when_leases_and_tokens_end_before_the_run() {
    leases_end_before_the_run(Plan {
        lease: ("2s", "5s"),
        token: ("4s", "6s"),
        outage: (Duration::from_secs(4), Duration::from_secs(6)),
        every: Duration::from_millis(150),
        run: Duration::from_secs(10),
    })
    .await;
}

/// The whole count of case S08: `cargo nextest run -p sallyport-gateway --test traffic --run-ignored only whole_count`.
#[tokio::test]
#[ignore = "three minutes"]
async fn the_whole_count_of_leases_that_end_before_the_run() {
    leases_end_before_the_run(Plan {
        lease: ("20s", "60s"),
        token: ("45s", "120s"),
        outage: (Duration::from_secs(30), Duration::from_secs(50)),
        every: Duration::from_secs(5),
        run: Duration::from_secs(180),
    })
    .await;
}

#[tokio::test]
async fn the_gateway_logs_in_with_a_jwt_and_a_sealed_vault_gives_nothing_any_more() {
    let bao = Bao::start().await;
    bao.post("secret/data/agents/model", json!({"data": {"key": FIRST}}))
        .await;
    let key = rcgen::KeyPair::generate().unwrap();
    bao.post("sys/auth/jwt", json!({"type": "jwt"})).await;
    bao.post(
        "auth/jwt/config",
        json!({"jwt_validation_pubkeys": [key.public_key_pem()]}),
    )
    .await;
    let role = json!({"role_type": "jwt", "bound_audiences": ["vault"], "user_claim": "sub", "token_policies": "gateway", "token_ttl": "10m"});
    bao.post("auth/jwt/role/gateway", role).await;
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({"sub": "gateway", "aud": "vault", "iat": now, "exp": now + 300});
    let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256);
    let signing = jsonwebtoken::EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).unwrap();
    let jwt = jsonwebtoken::encode(&header, &claims, &signing).unwrap();

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("identity.jwt"), jwt).unwrap();
    let store = Arc::new(SecretStore::open(folder.path()).unwrap());
    let link = Link::to(bao.port).await;
    let yaml = link.yaml(false, "allow: [secret/agents/*]");
    let approle = yaml.lines().find(|line| line.contains("approle")).unwrap();
    let yaml = yaml.replace(approle, "    jwt: {role: gateway, jwt: {file: identity.jwt}}");
    let keeper = keeper(folder.path(), &store, &limits(), &yaml);
    let policy = PolicyText {
        name: "policy.yaml".into(),
        text: MODEL.replace("PORT", "443"),
    };
    let policy = Policy::compile(&[policy]).unwrap();
    let who = Arc::new(Who::default());
    keeper.want("run-1", &who, policy.credentials());
    keeper.settled("run-1").await;
    let source = &policy
        .credentials()
        .iter()
        .find(|one| one.name == "token")
        .unwrap()
        .from;
    assert_eq!(
        keeper.give("run-1", &who, source).unwrap().value.len(),
        FIRST.len()
    );
    assert!(keeper.faults().is_empty());
    bao.post("sys/seal", json!({})).await;
    let began = Instant::now();
    let why = loop {
        match keeper.give("run-1", &who, source) {
            Err(Unread::Unavailable { sentence, .. }) => break sentence,
            other => assert!(began.elapsed() < Duration::from_secs(5), "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(why.contains("sealed"), "{why}");
}
