//! Log-ins by password over ssh: the placeholder at the gateway, the real one at the host, in both ways that hosts ask for it.
use crate::origin::Roots;
use crate::sshd::{bridge, finish, text};
use crate::stand::{SECRET, Stand};
use russh::keys::key::safe_rng;
use russh::keys::{Algorithm, PrivateKey};
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Response, Session, run_stream};
use russh::{Channel, ChannelId};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::ssh::host_key::HostKey;
use std::borrow::Cow;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

const POLICY: &str = r#"
version: 1
default: deny
credentials:
  deploy: {from: {store: token}, hosts: [allowed.test], in: [password]}
known-hosts: ["[allowed.test]:PORT HOSTKEY"]
rules:
  - {id: shell, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: ssh, user: deploy, private: true}, use: [deploy], effect: allow}
"#;

/// A host that asks for a password in one way (RFC 4252 section 8, or RFC 4256) and notes what it was given. A server that knows
/// passwords of the system's users would need such a user.
#[derive(Clone)]
struct Host {
    interactive: bool,
    given: Arc<Mutex<Vec<String>>>,
}

impl Host {
    fn check(&self, user: &str, password: &[u8]) -> Auth {
        let password = String::from_utf8_lossy(password).into_owned();
        let fits = user == "deploy" && password == SECRET;
        self.given.lock().unwrap().push(password);
        if fits { Auth::Accept } else { Auth::reject() }
    }
}

impl Handler for Host {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        match self.interactive {
            true => Ok(Auth::reject()),
            false => Ok(self.check(user, password.as_bytes())),
        }
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        match response {
            _ if !self.interactive => Ok(Auth::reject()),
            None => Ok(Auth::Partial {
                name: Cow::Borrowed(""),
                instructions: Cow::Borrowed(""),
                prompts: Cow::Borrowed(&[(Cow::Borrowed("Code: "), false)]),
            }),
            Some(mut answers) => Ok(self.check(user, &answers.next().unwrap_or_default())),
        }
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        session.data(channel, data.to_vec())?;
        session.exit_status_request(channel, 0)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

/// A gateway before such a host.
struct Yard {
    stand: Stand,
    given: Arc<Mutex<Vec<String>>>,
    port: u16,
    folder: tempfile::TempDir,
}

impl Yard {
    async fn new(interactive: bool) -> Self {
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).unwrap();
        let public = key.public_key().to_openssh().unwrap();
        let config = Arc::new(Config {
            keys: vec![key],
            auth_rejection_time: Duration::ZERO,
            ..Config::default()
        });
        let given: Arc<Mutex<Vec<String>>> = Arc::default();
        let host = Host {
            interactive,
            given: given.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stand = Stand::new(&Roots::new(), listener.local_addr().unwrap().port()).await;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, host) = (config.clone(), host.clone());
                tokio::spawn(async move {
                    if let Ok(running) = run_stream(config, stream, host).await {
                        // A client that leaves in the middle is the client's affair.
                        let _ended = running.await;
                    }
                });
            }
        });
        stand.put(&POLICY.replace("HOSTKEY", &public));
        let (port, _) = bridge(&stand, &stand.at("allowed.test")).await;
        let folder = tempfile::tempdir().unwrap();
        let own = HostKey::open(stand.folder.path()).unwrap();
        std::fs::write(folder.path().join("known"), own.known_hosts_line()).unwrap();
        Self {
            stand,
            given,
            port,
            folder,
        }
    }

    /// OpenSSH, which asks a program for the password.
    async fn ssh(&self, way: &str, password: &str) -> Output {
        let asked = self.folder.path().join("askpass");
        std::fs::write(&asked, format!("#!/bin/sh\necho '{password}'\n")).unwrap();
        std::fs::set_permissions(&asked, std::fs::Permissions::from_mode(0o700)).unwrap();
        let known = format!(
            "UserKnownHostsFile={}",
            self.folder.path().join("known").display()
        );
        let ways = format!("PreferredAuthentications={way}");
        let mut command = tokio::process::Command::new("ssh");
        command
            .args(["-F", "none", "-p", &self.port.to_string(), "-l", "deploy"])
            .args(["-o", "StrictHostKeyChecking=yes", "-o", &known, "-o", &ways])
            .args(["-o", "NumberOfPasswordPrompts=1", "127.0.0.1", "echo of the host"])
            .env("SSH_ASKPASS", asked)
            .env("SSH_ASKPASS_REQUIRE", "force");
        finish(command, b"").await
    }
}

#[tokio::test]
async fn a_placeholder_password_becomes_the_real_one_in_whichever_way_client_and_host_ask() {
    for interactive in [false, true] {
        let yard = Yard::new(interactive).await;
        let placeholder = yard.stand.sessions.view("run-1", "").unwrap().credentials[0]
            .placeholder
            .clone();
        for way in ["password", "keyboard-interactive"] {
            let output = yard.ssh(way, &placeholder).await;
            assert_eq!(
                text(&output.stdout),
                "echo of the host",
                "{way}: {}",
                text(&output.stderr)
            );
        }
        assert_eq!(*yard.given.lock().unwrap(), [SECRET, SECRET]);
        let records = yard.stand.records_of(|record| record.ending == "complete").await;
        assert_eq!(records[0].credentials_used, ["deploy"]);
        assert_eq!(records[0].login.as_deref(), Some("deploy"));
    }
}

#[tokio::test]
async fn another_password_and_the_real_one_let_nobody_in() {
    let yard = Yard::new(false).await;
    for password in ["guess", SECRET] {
        for way in ["password", "keyboard-interactive"] {
            let output = yard.ssh(way, password).await;
            assert_eq!(output.status.code(), Some(255));
            assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        }
    }
    assert_eq!(*yard.given.lock().unwrap(), Vec::<String>::new());
    let records = yard.stand.records(4).await;
    let denied = records.iter().filter(|record| record.verdict == Verdict::Denied);
    assert_eq!(denied.count(), 4, "{records:#?}");
}
