//! A real PostgreSQL server on loopback, with TLS and every kind of log-in, and clients that reach it through the gateway.
use crate::origin::{NAMES, Roots};
use crate::stand::{SECRET, Stand};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Client, Config, Connection, NoTls};

/// Log-in with the credential to some databases, without to one; `other.test` may be reached and is not asked for a password.
pub(crate) const DATABASE: &str = r#"
version: 1
credentials:
  db: {from: {store: token}, hosts: [allowed.test], in: [password], env: PGPASSWORD}
rules:
  - id: shop
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: postgres, database: [shop, hashed, clear], user: [agent, hashed], private: true}
    use: [db]
    effect: allow
  - id: open
    to: {host: [allowed.test, other.test, 127.0.0.0/8], port: PORT, protocol: postgres, database: trusted, private: true}
    effect: allow
  - id: no-archive
    to: {host: allowed.test, port: PORT, protocol: postgres, database: archive}
    effect: deny
    hint: Read the copy in `shop`.
"#;

/// A server, gone when dropped.
pub(crate) struct Database {
    pub(crate) port: u16,
    server: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Database {
    fn drop(&mut self) {
        // An orderly stop would wait for the clients; nothing of it is kept.
        let _killed = self.server.kill();
        let _reaped = self.server.wait();
    }
}

impl Database {
    /// Starts one whose certificate is of `roots` and for `names`. Without names it does not speak TLS.
    pub(crate) async fn start(roots: &Roots, names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let owner = owner();
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let made = run_as(owner, &program("initdb"))
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
            ])
            .args(["--locale=C", "--pgdata"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let port = free_port().await;
        write(&data, owner, "pg_hba.conf", HBA);
        let mut settings = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\nshared_buffers = 16MB\nmax_connections = 40\n"
        );
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let (leaf, key) = roots.sign(&rcgen::CertificateParams::new(names).unwrap());
            write(&data, owner, "server.crt", &leaf.pem());
            write(&data, owner, "server.key", &key.serialize_pem());
            settings.push_str("ssl = on\n");
        }
        write(&data, owner, "postgresql.auto.conf", &settings);
        let server = run_as(owner, &program("postgres"))
            .arg("-D")
            .arg(&data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let database = Self {
            port,
            server,
            _folder: folder,
        };
        let admin = database.admin().await;
        for statement in SETUP.replace("SECRET", SECRET).split(";\n") {
            admin.batch_execute(statement).await.unwrap();
        }
        database
    }

    /// A superuser's connection past the gateway, made as soon as the server takes one.
    pub(crate) async fn admin(&self) -> Client {
        self.admin_of("postgres").await
    }

    /// The same in another database.
    pub(crate) async fn admin_of(&self, name: &str) -> Client {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let mut config = Config::new();
            config.user("postgres").dbname(name);
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)).await
                && let Ok((client, connection)) = config.connect_raw(stream, NoTls).await
            {
                tokio::spawn(connection);
                return client;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "the server does not start"
            );
            tokio::task::yield_now().await;
        }
    }
}

const HBA: &str = "host all postgres 127.0.0.1/32 trust
host trusted all 127.0.0.1/32 trust
host clear all 127.0.0.1/32 password
host hashed all 127.0.0.1/32 md5
host all all 127.0.0.1/32 scram-sha-256
";

const SETUP: &str = "CREATE ROLE agent LOGIN PASSWORD 'SECRET';
SET password_encryption = 'md5';
CREATE ROLE hashed LOGIN PASSWORD 'SECRET';
CREATE DATABASE shop OWNER agent;
CREATE DATABASE hashed OWNER hashed;
CREATE DATABASE clear OWNER agent;
CREATE DATABASE trusted OWNER agent;
";

/// The user that the server runs as: it refuses to be root.
fn owner() -> Option<(u32, u32)> {
    rustix::process::geteuid().is_root().then(|| {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        let line = passwd.lines().find(|line| line.starts_with("postgres:"));
        let mut fields = line.expect("the user of the package").split(':').skip(2);
        let mut number = || fields.next().unwrap().parse().unwrap();
        (number(), number())
    })
}

fn run_as(owner: Option<(u32, u32)>, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env_clear().env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

fn program(name: &str) -> PathBuf {
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").expect("Debian's package `postgresql` is installed");
    let mut found: Vec<PathBuf> = versions
        .map(|entry| entry.unwrap().path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().expect("a server of some version")
}

fn write(data: &Path, owner: Option<(u32, u32)>, name: &str, text: &str) {
    let path = data.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    if let Some((user, group)) = owner {
        std::os::unix::fs::chown(path, Some(user), Some(group)).unwrap();
    }
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

/// A gateway before a server that has the right certificate, under [`DATABASE`].
pub(crate) async fn both() -> (Arc<Stand>, Database) {
    let roots = Roots::new();
    let database = Database::start(&roots, &NAMES).await;
    (before(&roots, &database).await, database)
}

/// A gateway before a server.
pub(crate) async fn before(roots: &Roots, database: &Database) -> Arc<Stand> {
    let stand = Stand::new(roots, database.port).await;
    stand.put(DATABASE);
    Arc::new(stand)
}

impl Stand {
    /// The placeholder of `db`.
    pub(crate) fn password(&self) -> String {
        let view = self.sessions.view("run-1", &self.ca_pem).unwrap();
        let db = view.credentials.iter().find(|credential| credential.name == "db");
        db.unwrap_or_else(|| panic!("{:?}", view.warnings))
            .placeholder
            .clone()
    }

    /// `psql` through the gateway; `settings` is a connection string without the host.
    pub(crate) async fn psql(self: &Arc<Self>, host: &str, settings: &str, statement: &str) -> Output {
        let entry = self.entry(host).await;
        let ca = self.folder.path().join("machine-ca.pem");
        std::fs::write(&ca, &self.ca_pem).unwrap();
        let target = format!(
            "host={host} hostaddr=127.0.0.1 port={} sslrootcert={} connect_timeout=30 {settings}",
            entry.port(),
            ca.display()
        );
        tokio::process::Command::new("psql")
            .args(["--no-psqlrc", "--tuples-only", "--no-align", "--no-password"])
            .args(["--dbname", &target, "--command", statement])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .env("PGPASSWORD", self.password())
            .output()
            .await
            .unwrap()
    }

    /// A listener whose connections go to a name at the server, through the gateway.
    async fn entry(self: &Arc<Self>, host: &str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stand, target) = (self.clone(), self.at(host));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut tunnel = stand.tunnel(&target).await;
                tokio::spawn(async move {
                    // A client that leaves early is part of some tests.
                    let _ended = tokio::io::copy_bidirectional(&mut client, &mut tunnel).await;
                });
            }
        });
        address
    }

    /// A client of `shop` as `agent`, with its connection, which the caller drives.
    pub(crate) async fn log_in(
        &self,
        database: &str,
        password: &str,
    ) -> Result<(Client, Connection<TcpStream, tokio_postgres::tls::NoTlsStream>), tokio_postgres::Error>
    {
        let mut config = Config::new();
        config.user("agent").dbname(database).password(password);
        let tunnel = self.tunnel(&self.at("allowed.test")).await;
        config.connect_raw(tunnel, NoTls).await
    }

    /// The same, driven until it ends.
    pub(crate) async fn client(&self, database: &str) -> Client {
        let (client, connection) = self.log_in(database, &self.password()).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// What a program printed: standard output, and what it complained of.
pub(crate) fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}
