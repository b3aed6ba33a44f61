//! Namespace machines for real, as the user who runs the tests: what is seen inside, and where traffic goes.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share stops them, as a test does"
)]
mod machines;

use machines::{Host, call, keeper, run, shim};
use sallyport_shim::wire::ExecEnd;
use sallyport_supervisor::machine::namespace::NamespaceDriver;
use sallyport_supervisor::machine::{Attach, Driver, MachineRecord, MachineSpec};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// What the machine's side of the network looks like from the gateway's: both listeners, usable without root.
struct Wire {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Wire {
    async fn of(host: &Host, record: &MachineRecord) -> Arc<Wire> {
        let attachment = host.driver.attach(record).await.unwrap();
        let wire = Wire {
            tcp: attachment.redirect.into_iter().map(TcpListener::from).collect(),
            udp: attachment.dns.into_iter().map(UdpSocket::from).collect(),
        };
        for socket in &wire.udp {
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        Arc::new(wire)
    }

    /// Waits for the machine without stopping what makes it act.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Wire) -> T + Send + 'static,
    ) -> T {
        let wire = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&wire)).await.unwrap()
    }

    /// Accepts one connection, answers on it with where it meant to go, and tells that.
    fn accept(&self, family: usize) -> SocketAddr {
        let (mut stream, _) = self.tcp[family].accept().unwrap();
        let wanted: SocketAddr = if family == 0 {
            rustix::net::sockopt::ip_original_dst(&stream).unwrap().into()
        } else {
            rustix::net::sockopt::ipv6_original_dst(&stream).unwrap().into()
        };
        stream.write_all(format!("{wanted}\n").as_bytes()).unwrap();
        wanted
    }

    /// Answers one datagram with its own bytes turned around.
    fn answer(&self, family: usize) -> Vec<u8> {
        let mut buffer = [0; 512];
        let (length, from) = self.udp[family].recv_from(&mut buffer).unwrap();
        let mut bytes = buffer[..length].to_vec();
        bytes.reverse();
        self.udp[family].send_to(&bytes, from).unwrap();
        buffer[..length].to_vec()
    }
}

#[tokio::test]
async fn a_machine_boots_and_sees_nothing_of_the_host_but_its_programs() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let (text, end) = run(
        &machine,
        "c1",
        "id -un; pwd; echo $HOME; hostname; ls /home /root; cat /proc/1/comm",
    )
    .await;
    assert_eq!(end, ExecEnd::Code { code: 0 }, "{text}");
    assert_eq!(
        text,
        "root\n/home/agent\n/home/agent\nm1\n/home:\nagent\n\n/root:\nsallyport-shim\n"
    );
    let state = host.state.path().display();
    let hidden = format!(
        "for p in {state} /etc/shadow /etc/sudoers /etc/ssh /etc/ssl/private /.host /sys/class; do [ -e $p ] && echo $p; done; ls -A /root /home/agent; [ $$ -lt 100 ]"
    );
    assert_eq!(
        run(&machine, "c2", &hidden).await,
        ("/home/agent:\n\n/root:\n".to_owned(), ExecEnd::Code { code: 0 })
    );
    let (interfaces, _) = run(
        &machine,
        "c3",
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '",
    )
    .await;
    assert_eq!(interfaces, "lo\n");
    let (mounts, _) = run(&machine, "c4", "cut -d' ' -f2 /proc/mounts").await;
    assert!(
        !mounts.contains(".host") && mounts.lines().count() < 25,
        "{mounts}"
    );
    let tools = "git --version && python3 -c 'import venv, ssl' && node --version && npm --version && sallyport-shim blocked";
    let (text, end) = run(&machine, "c5", tools).await;
    assert_eq!(end, ExecEnd::Code { code: 0 }, "{text}");
    let write = "echo x > /etc/x && echo x > /usr/bin/x && echo x > /usr/local/share/x && echo x > /opt/x && echo x > /tmp/x && mkdir /workspace && cat /etc/x /usr/bin/x";
    assert_eq!(
        run(&machine, "c6", write).await,
        ("x\nx\n".to_owned(), ExecEnd::Code { code: 0 })
    );
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn every_connection_arrives_at_the_listener_with_where_it_meant_to_go() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let wire = Wire::of(&host, &record).await;
    let targets = [
        (0, "203.0.113.9:4444", "203.0.113.9/4444"),
        (0, "10.0.0.1:22", "10.0.0.1/22"),
        (0, "169.254.169.254:80", "169.254.169.254/80"),
        (0, "192.0.2.1:53", "192.0.2.1/53"),
        (0, "127.0.0.53:53", "127.0.0.53/53"),
        (1, "[2001:db8::7]:5432", "2001:db8::7/5432"),
        (1, "[fe80::1]:443", "fe80::1%lo/443"),
    ];
    for (index, (family, wanted, dialled)) in targets.into_iter().enumerate() {
        if family >= wire.tcp.len() {
            continue;
        }
        let script = format!("exec 3<>/dev/tcp/{dialled} && cat <&3");
        let id = format!("c{index}");
        let (seen, (text, _)) = tokio::join!(
            wire.blocking(move |wire| wire.accept(family)),
            run(&machine, &id, &script)
        );
        assert_eq!(seen, wanted.parse().unwrap());
        assert_eq!(text.trim(), wanted);
    }
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn names_are_asked_at_our_socket_and_answered_from_the_address_that_was_asked() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let wire = Wire::of(&host, &record).await;
    for (index, (family, address)) in [
        (0, "127.0.0.53"),
        (0, "8.8.8.8"),
        (1, "2001:4860:4860::8888"),
        (1, "::1"),
    ]
    .into_iter()
    .enumerate()
    {
        if family >= wire.udp.len() {
            continue;
        }
        let script = format!(
            "import socket; s = socket.socket(socket.{}, socket.SOCK_DGRAM); s.settimeout(10); \
             s.connect(('{address}', 53)); s.send(b'query'); print(s.recv(99).decode())",
            if family == 0 { "AF_INET" } else { "AF_INET6" },
        );
        let id = format!("c{index}");
        let script = format!("python3 -c \"{script}\"");
        let (seen, (text, _)) = tokio::join!(
            wire.blocking(move |wire| wire.answer(family)),
            run(&machine, &id, &script)
        );
        assert_eq!(
            (seen.as_slice(), text.as_str()),
            (&b"query"[..], "yreuq\n"),
            "{address}"
        );
    }
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn other_datagrams_are_refused_at_once_and_the_machines_own_servers_are_its_own() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let script = r#"python3 -c "
import socket, time
begun = time.time()
for address, port in (('203.0.113.9', 443), ('192.0.2.3', 123)):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((address, port))
    s.send(b'x')
    try:
        s.recv(9)
    except ConnectionRefusedError:
        print('refused')
print(time.time() - begun < 0.1)
server = socket.create_server(('127.0.0.1', 8000))
client = socket.create_connection(('localhost', 8000))
print(server.accept()[0].getsockname()[1])
""#;
    assert_eq!(
        run(&machine, "c1", script).await.0,
        "refused
refused
True
8000
"
    );
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn the_machines_root_can_neither_change_mounts_nor_its_network() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let script = "mount -t tmpfs x /mnt; umount /usr; mount -o remount,rw /; ip link add d type dummy; \
        ip route add 203.0.113.0/24 via 127.0.0.1; nft flush ruleset; \
        sysctl -w kernel.hostname=x; mknod /tmp/sda b 8 0; chroot /proc/1/root true; \
        grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status | cut -f2";
    let (text, _) = run(&machine, "c1", script).await;
    let tail: Vec<&str> = text.lines().rev().take(3).collect();
    assert_eq!(tail[0], "1", "{text}");
    let sys_admin = 1u64 << 21 | 1 << 12;
    for set in &tail[1..] {
        assert_eq!(u64::from_str_radix(set, 16).unwrap() & sys_admin, 0, "{text}");
    }
    for done in ["mounts", "route show table local"] {
        assert!(!text.contains(done));
    }
    let (mounts, _) = run(
        &machine,
        "c2",
        "grep -c ' /mnt ' /proc/mounts; [ -e /tmp/sda ] && echo device",
    )
    .await;
    assert_eq!(
        mounts,
        "0
"
    );
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn a_new_supervisor_finds_the_running_command_and_its_result() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let script = "echo begun; echo x >> /tmp/ran; mkfifo /tmp/go; read < /tmp/go; echo finished";
    let (give, mut take) = mpsc::channel(64);
    let first = call("c1", script);
    let own = Arc::clone(&machine);
    let running = tokio::spawn(async move { own.exec(&first, give).await });
    assert_eq!(
        &take.recv().await.unwrap().bytes[..],
        b"begun
"
    );
    running.abort();
    drop(machine);
    let again = NamespaceDriver::new(host.state.path().join("machines"), keeper(), shim());
    let found = again.list().await.unwrap();
    assert_eq!(found, std::slice::from_ref(&record));
    let machine = again.connect(&found[0]).await.unwrap();
    let (ended, _) = tokio::join!(
        run(&machine, "c1", script),
        run(&machine, "c2", "until [ -p /tmp/go ]; do :; done; echo > /tmp/go")
    );
    assert_eq!(
        ended,
        (
            "begun
finished
"
            .to_owned(),
            ExecEnd::Code { code: 0 }
        )
    );
    assert_eq!(
        run(&machine, "c3", "cat /tmp/ran").await.0,
        "x
"
    );
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn a_bound_folder_is_seen_and_cannot_be_changed() {
    let host = Host::new();
    let seen = host.state.path().join("a folder");
    std::fs::create_dir(&seen).unwrap();
    std::fs::write(
        seen.join("f"),
        "content
",
    )
    .unwrap();
    let binds = vec![(seen.display().to_string(), "/srv/seen".to_owned())];
    let record = host
        .driver
        .create(&MachineSpec {
            id: "m1".to_owned(),
            binds,
        })
        .await
        .unwrap();
    let machine = host.driver.connect(&record).await.unwrap();
    let script = "cat /srv/seen/f; touch /srv/seen/x || mount -o remount,rw,bind /srv/seen; touch /srv/seen/x; \
        unshare -rm sh -c 'mount -o remount,rw,bind /srv/seen; touch /srv/seen/x'";
    let (text, _) = run(&machine, "c1", script).await;
    assert!(
        text.starts_with(
            "content
"
        ),
        "{text}"
    );
    assert!(!seen.join("x").exists(), "{text}");
    host.driver.destroy(&record).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(seen.join("f")).unwrap(),
        "content
"
    );
    let binds = vec![("/no/such".to_owned(), "/srv/x".to_owned())];
    let failed = host
        .driver
        .create(&MachineSpec {
            id: "m2".to_owned(),
            binds,
        })
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("`/no/such`"), "{failed}");
    host.driver
        .destroy(&host.driver.list().await.unwrap()[0])
        .await
        .unwrap();
}

#[tokio::test]
async fn sockets_that_no_namespace_fences_cannot_be_made() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let script = r#"python3 -c "
import ctypes, socket
for family in (40, 17, 38, 30, 16, 10, 2, 1):
    try:
        socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_DGRAM)
        print(family, 'made')
    except OSError as error:
        print(family, error.errno)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(425, 8, 0), ctypes.get_errno())
""#;
    let expected = "40 97\n17 97\n38 97\n30 97\n16 made\n10 made\n2 made\n1 made\n-1 38\n";
    assert_eq!(run(&machine, "c1", script).await.0, expected);
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn every_client_finds_the_authority_with_and_without_an_environment() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let key = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj '/CN=Gateway Test' \
        -addext basicConstraints=critical,CA:TRUE -keyout /dev/null 2>/dev/null";
    let (ca_pem, _) = run(&machine, "c0", key).await;
    let warnings = machine
        .setup(&ca_pem, &[("GREETING".to_owned(), "hello".to_owned())].into())
        .await
        .unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let checks = r#"
        openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt /etc/ssl/gw/ca.pem
        openssl verify -no-CAfile -CApath /etc/ssl/certs /etc/ssl/gw/ca.pem
        python3 -c "import ssl; print(any('Gateway Test' in str(c) for c in ssl.create_default_context().get_ca_certs()))"
        node -e "console.log(require('fs').readFileSync('/etc/ssl/certs/ca-certificates.crt').length > 1000)"
        grep -c gw/bundle.pem /etc/wgetrc /etc/apt/apt.conf.d/99sallyport
        echo ${GREETING-none} ${GIT_SSL_CAINFO-none} ${https_proxy-none}"#;
    let seen = "/etc/ssl/gw/ca.pem: OK\n/etc/ssl/gw/ca.pem: OK\nTrue\ntrue\n/etc/wgetrc:1\n/etc/apt/apt.conf.d/99sallyport:1\n";
    let (text, _) = run(&machine, "c1", checks).await;
    assert_eq!(text, format!("{seen}hello /etc/ssl/gw/bundle.pem none\n"));
    let bare = format!("env -i bash -c '{}'", checks.replace('\'', r"'\''"));
    let (text, _) = run(&machine, "c2", &bare).await;
    assert_eq!(text, format!("{seen}none none none\n"));
    let login =
        "env -i https_proxy=http://host.test bash -lc 'echo $GREETING $GIT_SSL_CAINFO ${https_proxy-none}'";
    assert_eq!(
        run(&machine, "c3", login).await.0,
        "hello /etc/ssl/gw/bundle.pem none\n"
    );
    let (text, _) = run(
        &machine,
        "c4",
        // Programs that can read keys hold the words, too.
        "grep -rlsIE 'PRIVATE KEY' /etc /home /root /run /var | head",
    )
    .await;
    assert_eq!(text, "");
    host.driver.destroy(&record).await.unwrap();
}

#[tokio::test]
async fn a_python_environment_and_a_node_module_work_without_the_network() {
    let host = Host::new();
    let (record, machine) = host.machine("m1").await;
    let script = "python3 -m venv v && v/bin/python -c 'import pip' && git init -q r && cd r && \
        git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --format=%s && \
        npm init -y >/dev/null && node -e 'console.log(require(\"./package.json\").name)'";
    assert_eq!(run(&machine, "c1", script).await.0, "x\nr\n");
    host.driver.destroy(&record).await.unwrap();
}
