//! Traffic that a packet filter leads here, by REDIRECT and by TPROXY, in real network namespaces: names by synthetic address.
use crate::origin::{Origin, Roots};
use crate::stand::Stand;
use sallyport_gateway::control::handover;
use sallyport_gateway::control::types::{ListenerKind, Verdict};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// Asks the name server at an address for a name, and prints the address that it gives.
const LOOK_UP: &str = r#"
import socket, sys
def look_up(name, server):
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    query += b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0\0\1\0\1"
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.settimeout(20)
    asking.sendto(query, server)
    return socket.inet_ntoa(asking.recv(1500)[len(query) + 12:][:4])
"#;

/// Opens listeners in its own network namespace, hands them over, and asks for names by TPROXY.
const MACHINE: &str = r#"
import json, subprocess
handover, port, ca = sys.argv[1], sys.argv[2], sys.argv[3]
tcp = socket.socket()
tcp.setsockopt(socket.SOL_IP, 19, 1)
tcp.bind(("0.0.0.0", 15001)); tcp.listen()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 53))
gateway = socket.socket(socket.AF_UNIX)
gateway.connect(handover)
line = json.dumps({"session": "run-1", "listeners": ["transparent", "dns"]}) + "\n"
socket.send_fds(gateway, [line.encode()], [tcp.fileno(), udp.fileno()])
answer = gateway.recv(1000)
assert b"serving" in answer, answer
for name in ["allowed.test", "denied.test"]:
    address = look_up(name, ("127.0.0.1", 53))
    at = f"{name}:{port}"
    subprocess.run(["curl", "-sS", "--cacert", ca, "--resolve", f"{at}:{address}", f"https://{at}/led"], check=True)
    print()
loop = socket.create_connection(("127.0.0.1", 15001))
assert loop.recv(1) == b""
"#;

/// No uplink; the synthetic range is local, and TPROXY leads it to the listener.
const TPROXY: &str = "
ip link set lo up
ip route add local 198.18.0.0/15 dev lo
nft -f - <<RULES
table ip led {
  chain in {
    type filter hook prerouting priority mangle
    ip daddr 198.18.0.0/15 meta l4proto tcp tproxy to :15001
  }
}
RULES
";

/// Runs a script in a user and network namespace of its own.
async fn in_namespace(script: &str, arguments: &[&str]) -> Output {
    tokio::process::Command::new("unshare")
        .args(["-Urn", "bash", "-euo", "pipefail", "-c", script, "script"])
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

fn told(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[tokio::test]
async fn tproxy_leads_names_by_synthetic_address_to_a_listener_that_was_handed_over() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let (socket, ca) = (
        stand.folder.path().join("handover.sock"),
        stand.folder.path().join("ca.pem"),
    );
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(handover::serve(
        UnixListener::bind(&socket).unwrap(),
        stand.sessions.clone(),
        Arc::new(stand.gateway.clone()),
        stop.clone(),
    ));
    let script = format!("{TPROXY}\npython3 -c '{LOOK_UP}{MACHINE}' \"$@\"");
    let arguments = [
        socket.to_str().unwrap(),
        &stand.port.to_string(),
        ca.to_str().unwrap(),
    ];
    let text = told(&in_namespace(&script, &arguments).await);
    let mut lines = text.lines().filter(|line| !line.is_empty());
    assert!(lines.next().unwrap().starts_with("GET /led"), "{text}");
    assert!(text.contains("\"status\":403"), "{text}");
    let records = stand.records(3).await;
    let seen: Vec<_> = records
        .iter()
        .map(|record| (record.host.as_str(), record.verdict))
        .collect();
    assert_eq!(
        seen,
        [
            ("allowed.test", Verdict::Allowed),
            ("denied.test", Verdict::Denied),
            ("", Verdict::Malformed)
        ]
    );
    assert!(records[2].reason.contains("loop"), "{}", records[2].reason);
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_listener_that_is_not_transparent_is_refused_with_what_to_do() {
    use sallyport_gateway::control::handover::ListenerHost;
    let stand = Stand::new(&Roots::new(), 1).await;
    let listener: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
    let session = stand.sessions.by_id("run-1").unwrap();
    let error = stand
        .gateway
        .serve(session, vec![(ListenerKind::Transparent, listener)])
        .unwrap_err();
    assert!(error.contains("IP_TRANSPARENT"), "{error}");
}

#[tokio::test]
async fn the_documented_rules_are_rules() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/transparent.md");
    let text = std::fs::read_to_string(document).unwrap();
    let blocks: Vec<_> = text
        .split("```\n")
        .filter(|block| block.starts_with("table "))
        // Who is led is a user of the reader's host.
        .map(|block| block.replace("skuid \"ci\"", "skuid \"root\""))
        .collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        told(&in_namespace("nft -f - <<<\"$1\"", &[&block]).await);
    }
}

/// The rules of `deploy/transparent.md` for traffic that this host makes itself, with the synthetic range local.
const HOST: &str = r#"
ip link set lo up
ip route add local 198.18.0.0/15 dev lo
ip -6 route add local 64:ff9b:1::/48 dev lo
nft -f - <<RULES
table ip led {
  chain out {
    type nat hook output priority -100
    ip daddr 198.18.0.0/15 tcp dport 8081 redirect to :15001
  }
  chain in {
    type filter hook prerouting priority mangle
    ip daddr 198.18.0.0/15 tcp dport 8082 tproxy to :15002
  }
}
table ip6 led {
  chain in {
    type filter hook prerouting priority mangle
    ip6 daddr 64:ff9b:1::/48 tcp dport 8082 tproxy to :15003
  }
}
RULES
gateway=$1 state=$2
for port in 8081 8082; do python3 -m http.server --bind 127.0.0.1 --directory "$3" $port >/dev/null 2>&1 & done
"$gateway" --state "$state" serve --dns 127.0.0.1:1 --proxy-socket "$state/proxy.sock" --proxy-socket-mode 660 \
  --listen redirect:127.0.0.1:15001=one --listen dns:127.0.0.1:5301=one \
  --listen transparent:0.0.0.0:15002=two --listen transparent:[::]:15003=two --listen dns:127.0.0.1:5302=two >"$state/ready" &
serving=$!
trap 'kill $(jobs -p)' EXIT
until grep -qs ready "$state/ready"; do kill -0 $serving; done
stat -c 'mode %a' "$state/proxy.sock"
early=$(curl -sS --max-time 20 --connect-to ::198.18.0.9:8081 http://a.test:8081/ 2>&1) || echo "refused before there is a session"
for run in one two; do
  curl -fsS --unix-socket "$state/gateway.sock" -X PUT -H content-type:application/json -o /dev/null "http://g/v1/sessions/$run" -d '{
    "who": {"run": "'$run'"}, "hosts": {"a.test": "127.0.0.1"}, "policies": [{"name": "p.yaml", "text":
    "version: 1\nrules:\n  - {id: a, to: {host: [a.test, 127.0.0.0/8], port: 8081-8082, methods: [GET], path: /fine.txt, private: true}, effect: allow}\n"}]}'
done
for pair in 8081:5301 8082:5302; do
  port=${pair%:*}
  address=$(python3 -c "$LOOK_UP"'
print(look_up("a.test", ("127.0.0.1", int(sys.argv[1]))))' ${pair#*:})
  for path in fine.txt other.txt; do
    curl -sS --max-time 20 --resolve "a.test:$port:$address" -o "$state/body" -w "$port $path %{http_code}\n" "http://a.test:$port/$path"
  done
done
curl -sS --max-time 20 -o /dev/null -w "IPv6 %{http_code}\n" "http://[64:ff9b:1::7]:8082/fine.txt"
kill -TERM $serving
wait $serving
[ ! -e "$state/proxy.sock" ] && echo "the socket is gone"
"$gateway" --state "$state" log records --since 2020-01-01T00:00:00Z
"#;

#[tokio::test]
async fn a_host_leads_its_traffic_to_a_listener_for_each_session() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("fine.txt"), "fine").unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let script = format!("LOOK_UP='{LOOK_UP}'\n{HOST}");
    let gateway = Path::new(env!("CARGO_BIN_EXE_sallyport-gateway"));
    let arguments = [
        gateway.to_str().unwrap(),
        state.to_str().unwrap(),
        files.to_str().unwrap(),
    ];
    let text = told(&in_namespace(&script, &arguments).await);
    let (said, records): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| !line.starts_with('{'));
    assert_eq!(
        said,
        [
            "mode 660",
            "refused before there is a session",
            "8081 fine.txt 200",
            "8081 other.txt 403",
            "8082 fine.txt 200",
            "8082 other.txt 403",
            "IPv6 403",
            "the socket is gone",
        ]
    );
    let records: Vec<serde_json::Value> = records
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let http = records.iter().filter(|record| record["kind"] == "http");
    let seen: Vec<_> = http
        .map(|record| {
            let text = |key: &str| record[key].as_str().unwrap().to_owned();
            (
                text("session"),
                text("host"),
                record["port"].as_u64().unwrap(),
                text("verdict"),
            )
        })
        .collect();
    let right = |session: &str, host: &str, port, verdict: &str| {
        (session.to_owned(), host.to_owned(), port, verdict.to_owned())
    };
    assert_eq!(
        seen,
        [
            right("one", "a.test", 8081, "allowed"),
            right("one", "a.test", 8081, "denied"),
            right("two", "a.test", 8082, "allowed"),
            right("two", "a.test", 8082, "denied"),
            right("two", "64:ff9b:1::7", 8082, "denied"),
        ]
    );
    let early = records.iter().find(|record| record["kind"] == "connect").unwrap();
    assert!(
        early["reason"].as_str().unwrap().contains("session `one`"),
        "{early}"
    );
}
