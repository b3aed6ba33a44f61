//! SSH by real OpenSSH clients and servers: commands, terminals, files, what is refused and what is told.
use crate::sshd::{Yard, finish, keygen, text};
use crate::stand::SECRET;
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use sallyport_gateway::secret::{SecretStore, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One host, reached with the credential `deploy`.
const POLICY: &str = r#"
version: 1
default: deny
credentials:
  deploy: {from: {store: deploy}, hosts: [allowed.test], in: [ssh-key], env: DEPLOY_KEY}
  token: {from: {store: token}, hosts: [other.test], in: [bearer]}
known-hosts: ["HOSTKEY"]
rules:
  - {id: shell, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: ssh, user: "USER", private: true}, use: [deploy], effect: allow}
  - {id: other, to: {host: other.test, methods: [GET]}, use: [token], effect: allow}
"#;

#[tokio::test]
async fn a_command_runs_with_the_real_key_where_the_agent_has_a_placeholder() {
    let yard = Yard::new(POLICY).await;
    let output = yard.ssh(&["echo out; echo err >&2; exit 7"], b"").await;
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.code()),
        ("out\n", Some(7)),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stderr).contains("err\n"), "{}", text(&output.stderr));
    let records = yard.records(2).await;
    let [opened, closed] = &records[..] else {
        panic!("{records:#?}")
    };
    assert_eq!(opened.ending, "open");
    assert_eq!(
        (closed.verdict, closed.rule.as_str()),
        (Verdict::Allowed, "shell")
    );
    assert_eq!(closed.ending, "complete, exit status 7");
    assert_eq!(closed.credentials_used, ["deploy"]);
    assert_eq!(closed.login.as_deref(), Some(yard.user.as_str()));
    assert_eq!(closed.method.as_deref(), Some("exec"));
    assert_eq!(closed.path.as_deref(), Some("echo out; echo err >&2; exit 7"));
    assert_eq!((closed.bytes_in, closed.bytes_out), (8, 0));
}

#[tokio::test]
async fn megabytes_pass_both_ways_at_once_and_keys_are_exchanged_anew_meanwhile() {
    let yard = Yard::new(POLICY).await;
    let sent: Vec<u8> = (0..8_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let output = yard.ssh(&["cat"], &sent).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        output.stdout == sent,
        "{} of {} bytes",
        output.stdout.len(),
        sent.len()
    );
    let mut command = yard.command("placeholder");
    command.args(["-o", "RekeyLimit=1M", "cat"]);
    let output = finish(command, &sent).await;
    assert!(
        output.stdout == sent,
        "{} of {} bytes: {}",
        output.stdout.len(),
        sent.len(),
        text(&output.stderr)
    );
    let last = yard.records(4).await.pop().unwrap();
    assert_eq!((last.bytes_in, last.bytes_out), (8 << 20, 8 << 20));
}

#[tokio::test]
async fn a_shell_has_its_terminal_and_its_variables() {
    let yard = Yard::new(POLICY).await;
    let mut command = yard.command("placeholder");
    command
        .arg("-tt")
        .env("TERM", "vt220")
        .env("LANG", "C.UTF-8")
        .env("SECRET_NAME", "hidden");
    command.args(["-o", "SendEnv=LANG SECRET_NAME"]);
    let input = b"echo [$TERM] [$LANG] [$SECRET_NAME]; tty; exit 3\n";
    let output = finish(command, input).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("[vt220] [C.UTF-8] []") && said.contains("/dev/pts/"),
        "{said}"
    );
    let last = yard.records(2).await.pop().unwrap();
    assert_eq!(last.method.as_deref(), Some("shell"));
}

#[tokio::test]
async fn files_are_put_and_got() {
    let yard = Yard::new(POLICY).await;
    let content = vec![b'x'; 300_000];
    std::fs::write(yard.path("here"), &content).unwrap();
    let mut command = tokio::process::Command::new("sftp");
    command
        .args(yard.options("placeholder"))
        .args(["-b", "-", "-P", &yard.port.to_string()])
        .arg(format!("{}@127.0.0.1", yard.user));
    let (here, there, back) = (yard.path("here"), yard.path("there"), yard.path("back"));
    let batch = format!(
        "put {} {}\nget {} {}\n",
        here.display(),
        there.display(),
        there.display(),
        back.display()
    );
    let output = finish(command, batch.as_bytes()).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(back).unwrap() == content);
    let last = yard.records(2).await.pop().unwrap();
    assert_eq!(
        (last.method.as_deref(), last.path.as_deref()),
        (Some("subsystem"), Some("sftp"))
    );
}

#[tokio::test]
async fn several_commands_share_one_connection_and_each_is_decided_alone() {
    let yard = Yard::new(POLICY).await;
    let socket = yard.path("shared").display().to_string();
    let share = [
        format!("ControlPath={socket}"),
        "ControlMaster=auto".into(),
        "ControlPersist=30".into(),
    ];
    for number in ["1", "2", "3"] {
        let mut command = yard.command("placeholder");
        for option in &share {
            command.args(["-o", option]);
        }
        command.args(["echo", number]);
        let output = finish(command, b"").await;
        assert_eq!(
            text(&output.stdout),
            format!("{number}\n"),
            "{}",
            text(&output.stderr)
        );
    }
    let mut command = yard.command("placeholder");
    command.args(["-o", &share[0], "-O", "exit"]);
    finish(command, b"").await;
    let records = yard.records(6).await;
    let asked: Vec<_> = records
        .iter()
        .filter(|record| record.ending == "complete")
        .collect();
    assert_eq!(asked.len(), 3, "{records:#?}");
}

#[tokio::test]
async fn a_key_that_is_no_placeholder_is_refused_and_the_agent_is_told_which_one_is_right() {
    let yard = Yard::new(POLICY).await;
    keygen(&yard.path("own")).await;
    for (number, key) in ["own", "real"].into_iter().enumerate() {
        let output = yard.ssh_with(key, &["true"], b"").await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert!(
            said.contains("that was offered is no placeholder; log in with the placeholder key of credential `deploy` (decision "),
            "{said}"
        );
        let record = yard.records(number + 1).await.pop().unwrap();
        assert_eq!(
            (record.verdict, record.ending.as_str()),
            (Verdict::Denied, "refused")
        );
        assert!(said.contains(&record.id), "{said}");
    }
    // Without the interactive way there is nobody to tell; the record says it.
    let mut command = yard.command("own");
    command.args(["-o", "BatchMode=yes", "true"]);
    let output = finish(command, b"").await;
    assert_eq!(output.status.code(), Some(255));
    let record = yard.records(3).await.pop().unwrap();
    assert!(record.reason.contains("is no placeholder"), "{record:#?}");
}

#[tokio::test]
async fn what_no_rule_allows_is_told_on_standard_error() {
    let yard = Yard::new(&POLICY.replace("user: \"USER\"", "user: somebody")).await;
    let output = yard.ssh(&["true"], b"").await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{said}");
    let record = yard.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Denied);
    assert!(
        said.contains("sallyport: ") && said.contains(&format!("(decision {})", record.id)),
        "{said}"
    );
}

#[tokio::test]
async fn a_host_that_is_not_known_and_one_that_shows_another_key_are_refused() {
    let yard = Yard::new(&POLICY.replace("known-hosts: [\"HOSTKEY\"]\n", "")).await;
    let said = text(&yard.ssh(&["true"], b"").await.stderr);
    assert!(
        said.contains("the policy knows no key of `[allowed.test]:") && said.contains("`known-hosts`"),
        "{said}"
    );
    let record = yard.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Denied);
    assert!(record.credentials_used.is_empty());

    let other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIDnBUuVWu4RvNqMqRmAv1uPXYJLjgPPnXmw3KMg4R0o";
    let policy = POLICY.replace("HOSTKEY", &format!("[allowed.test]:PORT {other}"));
    let yard = Yard::new(&policy).await;
    let said = text(&yard.ssh(&["true"], b"").await.stderr);
    assert!(
        said.contains("showed the key `SHA256:") && said.contains("and the policy knows `SHA256:"),
        "{said}"
    );
    assert_eq!(yard.records(1).await.pop().unwrap().verdict, Verdict::Denied);
}

#[tokio::test]
async fn ports_and_agents_are_not_forwarded() {
    let yard = Yard::new(POLICY).await;
    let mut command = yard.command("placeholder");
    command.args(["-W", &format!("127.0.0.1:{}", yard.host_port)]);
    let output = finish(command, b"").await;
    let said = text(&output.stderr);
    assert!(said.contains("sallyport forwards no ports"), "{said}");
    assert!(output.stdout.is_empty());
    let record = yard.records(1).await.pop().unwrap();
    assert_eq!(
        (record.verdict, record.method.as_deref()),
        (Verdict::Denied, Some("forward"))
    );

    let mut command = yard.command("placeholder");
    command.args(["-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9", "true"]);
    let output = finish(command, b"").await;
    assert!(
        text(&output.stderr).contains("remote port forwarding failed"),
        "{}",
        text(&output.stderr)
    );
}

#[tokio::test]
async fn what_is_not_forwarded_is_told_at_the_command() {
    let yard = Yard::new(POLICY).await;
    let socket = yard.path("agent");
    let mut agent = tokio::process::Command::new("ssh-agent");
    agent.arg("-D").arg("-a").arg(&socket).kill_on_drop(true);
    let agent = agent.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // It says where it listens when it does.
    let mut said = String::new();
    let mut lines = tokio::io::BufReader::new(agent.stdout.unwrap());
    tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut said)
        .await
        .unwrap();
    for (asked, why, target) in [
        (
            &["-R", "8080:127.0.0.1:9"][..],
            "ports are not forwarded",
            "localhost:8080",
        ),
        (
            &["-R", "/run/there:/run/here"],
            "ports are not forwarded",
            "/run/there",
        ),
        (&["-A"], "the key agent is not forwarded", "agent"),
        (&["-Y"], "X11 is not forwarded", "x11"),
    ] {
        let mut command = yard.command("placeholder");
        command
            .args(asked)
            .args(["-o", &format!("IdentityAgent={}", socket.display())])
            .args(["-o", "IdentitiesOnly=yes", "echo [$SSH_AUTH_SOCK$DISPLAY]"])
            .env("DISPLAY", "127.0.0.1:99");
        let output = finish(command, b"").await;
        let said = text(&output.stderr);
        assert_eq!(text(&output.stdout), "[]\n", "{said}");
        let records = yard.records(1).await;
        let record = records
            .iter()
            .rfind(|record| record.method.as_deref() == Some("forward"));
        let record = record.unwrap_or_else(|| panic!("{asked:?}: {records:#?}"));
        assert_eq!(
            (record.verdict, record.path.as_deref()),
            (Verdict::Denied, Some(target))
        );
        assert!(
            said.contains(&format!("sallyport: {why}")) && said.contains(&record.id),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_value_does_not_leave_and_does_not_come_back() {
    let yard = Yard::new(POLICY).await;
    let placeholder = yard.placeholder("token").unwrap();
    let split = SECRET.split_at(9);
    let output = yard
        .ssh(
            &[&format!(
                "printf %s {}; printf '%s\\n' {}; printf %s%s {} {} >&2",
                split.0, split.1, split.0, split.1
            )],
            b"",
        )
        .await;
    assert_eq!(
        text(&output.stdout),
        format!("{placeholder}\n"),
        "{}",
        text(&output.stderr)
    );
    assert!(
        text(&output.stderr).contains(&placeholder),
        "{}",
        text(&output.stderr)
    );
    let record = yard.records(2).await.pop().unwrap();
    assert_eq!(record.credentials_redacted, ["token"]);

    for (command, input) in [("cat", SECRET), (&*format!("echo {SECRET}"), "")] {
        let output = yard.ssh(&[command], input.as_bytes()).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert!(
            said.contains("the value of credential `token` itself") && output.stdout.is_empty(),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_terminal_that_shows_the_beginning_of_a_value_does_not_wait_for_the_rest() {
    let yard = Yard::new(POLICY).await;
    let mut command = yard.command("placeholder");
    command.args(["printf ghp_; read line; printf \"<$line>\""]);
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut prompt = [0; 4];
    let read = stdout.read_exact(&mut prompt);
    tokio::time::timeout(std::time::Duration::from_secs(30), read)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&prompt, b"ghp_");
    stdin.write_all(b"ghp_\n").await.unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "<ghp_>");
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_commands() {
    let yard = Yard::new(POLICY).await;
    let mut command = yard.command("placeholder");
    command.args(["echo begun; sleep 1000"]);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut begun = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut begun)
        .await
        .unwrap();
    yard.stand.sessions.delete("run-1").unwrap();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), child.wait_with_output());
    let output = ended.await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(
        text(&output.stderr).contains("the session ended"),
        "{}",
        text(&output.stderr)
    );
}

#[tokio::test]
async fn a_real_key_of_rsa_logs_in_for_a_placeholder_of_ed25519() {
    let yard = Yard::new(POLICY).await;
    let placeholder = yard.placeholder("deploy").unwrap();
    let store = SecretStore::open(yard.stand.folder.path()).unwrap();
    for form in ["RFC4716", "PEM", "PKCS8"] {
        let key = yard.path(form);
        // The first of these is the form that OpenSSH keeps keys in.
        let form = if form == "RFC4716" { &[][..] } else { &["-m", form] };
        let mut keygen = tokio::process::Command::new("ssh-keygen");
        keygen
            .args(["-q", "-t", "rsa", "-b", "2048", "-N", ""])
            .args(form)
            .arg("-f")
            .arg(&key);
        assert!(finish(keygen, b"").await.status.success());
        std::fs::copy(key.with_extension("pub"), yard.path("authorized")).unwrap();
        store
            .set("deploy", Value::new(std::fs::read(&key).unwrap()))
            .unwrap();
        yard.stand.sessions.refresh_secrets().unwrap();
        assert_eq!(yard.placeholder("deploy").unwrap(), placeholder, "it stays");
        let output = yard.ssh(&["echo reached"], b"").await;
        assert_eq!(
            text(&output.stdout),
            "reached\n",
            "{form:?}: {}",
            text(&output.stderr)
        );
    }
    let log = std::fs::read_to_string(yard.path("sshd.log")).unwrap();
    assert_eq!(log.matches("ssh2: RSA SHA256:").count(), 3, "{log}");
    // The real key itself opens nothing here.
    let output = yard.ssh_with("PEM", &["true"], b"").await;
    assert!(
        text(&output.stderr).contains("is no placeholder"),
        "{}",
        text(&output.stderr)
    );
}

/// A client that trusts any host.
struct Trusting;

impl russh::client::Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        _key: &russh::keys::PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

#[tokio::test]
async fn a_client_that_leaves_no_room_for_a_word_leaves_its_records_all_the_same() {
    let yard = Yard::new(POLICY).await;
    let config = russh::client::Config {
        window_size: 0,
        ..Default::default()
    };
    let mut client = russh::client::connect(config.into(), ("127.0.0.1", yard.port), Trusting)
        .await
        .unwrap();
    let key = russh::keys::load_secret_key(yard.path("placeholder"), None).unwrap();
    let key = russh::keys::PrivateKeyWithHashAlg::new(key.into(), None);
    assert!(
        client
            .authenticate_publickey(&yard.user, key)
            .await
            .unwrap()
            .success()
    );
    let refused = format!("echo {SECRET}");
    let mut channels = Vec::new();
    for command in [refused.as_str(), "cat", "true"] {
        if command == "true" {
            // Told of at the next command.
            assert!(client.tcpip_forward("127.0.0.1", 8080).await.is_err());
        }
        let channel = client.channel_open_session().await.unwrap();
        channel.exec(true, command).await.unwrap();
        if command == "cat" {
            channel.data(SECRET.as_bytes()).await.unwrap();
        }
        channels.push(channel);
    }
    drop((channels, client));
    let ended = |record: &AuditRecord| record.ending != "open" && record.method.as_deref() == Some("exec");
    let mut records = yard.stand.records_until(3, ended).await;
    records.sort_by(|one, two| one.path.cmp(&two.path));
    let endings: Vec<_> = records.iter().map(|record| record.ending.as_str()).collect();
    assert_eq!(endings[..2], ["cut", "refused"], "{records:#?}");
    assert_eq!(records[2].path.as_deref(), Some("true"), "{records:#?}");
}
