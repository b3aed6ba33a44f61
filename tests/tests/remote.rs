//! A remote machine, end to end: a network of its own that leads to the gateway alone, real nftables, real curl, the tunnel.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]
use sallyport_gateway::control::types::{CertificateRequest, MachineCertificate, SessionSpec, SessionView};
use sallyport_harness::{Running, Stage};
use sallyport_policy::{PolicyText, Who};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);
/// Where the gateway accepts tunnels.
const PORT: u16 = 15443;
const POLICY: &str = "version: 1\nname: remote\ndefault: deny\nrules:\n  - {id: files, to: {host: [allowed.test, 127.0.0.0/8], port: 8443, \
                      methods: [GET], path: \"/files/**\", private: true}, effect: allow}\n";

/// A network namespace with one wire to this one; taken down when dropped.
struct Network {
    name: String,
    gateway: String,
}

impl Drop for Network {
    fn drop(&mut self) {
        // The wire goes with the namespace. Nothing can be done here where it does not.
        let _removed = Command::new("ip").args(["netns", "del", &self.name]).status();
        let _removed = std::fs::remove_dir_all(format!("/etc/netns/{}", self.name));
    }
}

impl Network {
    fn new() -> Self {
        let number = std::process::id() % 16_384;
        let (third, fourth) = (number / 64, number % 64 * 4);
        let name = format!("sp-{}", std::process::id());
        let (gateway, own) = (
            format!("10.213.{third}.{}", fourth + 1),
            format!("10.213.{third}.{}", fourth + 2),
        );
        let network = Self {
            name: name.clone(),
            gateway: gateway.clone(),
        };
        let rules = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../deploy/remote-machine/machine.nft"
        );
        let wire = format!("spw{}", std::process::id());
        // The machine's names are asked of an address that is not there: the packet filter has its way.
        shell(&format!(
            "set -e
             ip netns add {name}
             ip link add {wire} type veth peer name up0 netns {name}
             ip addr add {gateway}/30 dev {wire}
             ip link set {wire} up
             ip -n {name} addr add {own}/30 dev up0
             ip -n {name} link set up0 up
             ip -n {name} link set lo up
             ip -n {name} route add local default dev lo
             ip netns exec {name} nft -D gateway={gateway} -D port={PORT} -f {rules}
             mkdir -p /etc/netns/{name}
             echo 'nameserver 192.0.2.53' > /etc/netns/{name}/resolv.conf"
        ));
        network
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

fn shell(script: &str) {
    let done = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Everything outside the machine.
struct Outside {
    stage: Stage,
    network: Network,
    origin: Origin,
}

/// An origin, whose life hangs on its input.
struct Origin(std::process::Child, Value);

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.0.kill();
        let _gone = self.0.wait();
    }
}

impl Origin {
    fn start(stage: &Stage) -> Self {
        use std::io::BufRead;
        let files = stage.path("home/files");
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("hello.txt"), "hello from outside\n").unwrap();
        let mut command = stage.command("sallyport-origin");
        command
            .args(["--name", "allowed.test", "--port", "8443", "--dir"])
            .arg(stage.path("home/origin"))
            .arg("--files")
            .arg(&files)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufReader::new(out).read_line(&mut line).unwrap();
        Self(child, serde_json::from_str(&line).unwrap())
    }
}

impl Outside {
    fn new() -> (Self, Running) {
        let stage = Stage::new().unwrap();
        let network = Network::new();
        let origin = Origin::start(&stage);
        let outside = Self {
            stage,
            network,
            origin,
        };
        let gateway = outside.gateway();
        outside.open();
        (outside, gateway)
    }

    fn gateway(&self) -> Running {
        let mut command = self.stage.command("sallyport-gateway");
        command
            .arg("--state")
            .arg(self.stage.path("state"))
            .args(["serve", "--dns", "127.0.0.1:1", "--tunnel"])
            .arg(format!("{}:{PORT}", self.network.gateway));
        let mut gateway = Running::start(&mut command).unwrap();
        gateway.wait_for("\"ready\":true", SHORT).unwrap();
        gateway
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> String {
        let output = Command::new("curl")
            .args([
                "-sS",
                "--fail-with-body",
                "-X",
                method,
                "-d",
                &body.to_string(),
                "--unix-socket",
            ])
            .arg(self.stage.path("state/gateway.sock"))
            .arg(format!("http://gateway{path}"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{method} {path}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &Value) -> T {
        serde_json::from_str(&self.call(method, path, body)).unwrap()
    }

    fn open(&self) {
        let origin = &self.origin.1;
        let spec = SessionSpec {
            who: Who {
                run: "run-1".into(),
                ..Who::default()
            },
            policies: vec![PolicyText {
                name: "policy.yaml".into(),
                text: POLICY.into(),
            }],
            hosts: [(
                "allowed.test".to_owned(),
                origin["address"].as_str().unwrap().parse().unwrap(),
            )]
            .into(),
            upstream_roots_pem: std::fs::read_to_string(origin["ca_file"].as_str().unwrap()).unwrap(),
        };
        let body = serde_json::to_value(&spec).unwrap();
        let view: SessionView = self.ask("PUT", "/v1/sessions/run-1", &body);
        std::fs::write(self.file("leaves.pem"), view.ca_pem).unwrap();
    }

    /// What the supervisor does: the machine's own request, carried to the gateway, and its certificate carried back.
    fn certify(&self) {
        let mut request = Command::new(self.stage.path("bin/sallyport-shim"));
        request.args(["tunnel", "request-certificate", "--key"]);
        let request = request.arg(self.file("machine.key")).output().unwrap();
        assert!(request.status.success(), "{}", text(&request));
        let body = CertificateRequest {
            csr: String::from_utf8(request.stdout).unwrap(),
        };
        let path = "/v1/sessions/run-1/certificate";
        let answer: MachineCertificate = self.ask("POST", path, &serde_json::to_value(&body).unwrap());
        std::fs::write(self.file("tunnel-ca.pem"), answer.authority_pem).unwrap();
        std::fs::write(self.file("machine.new"), answer.certificate_pem).unwrap();
        std::fs::rename(self.file("machine.new"), self.file("machine.pem")).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.path("home").join(name)
    }

    fn tunnel(&self) -> Running {
        let mut command = self.network.command("env");
        command
            .arg(self.stage.path("bin/sallyport-shim"))
            .args(["tunnel", "--gateway", &format!("{}:{PORT}", self.network.gateway)])
            .arg("--certificate")
            .arg(self.file("machine.pem"))
            .arg("--key")
            .arg(self.file("machine.key"))
            .arg("--ca")
            .arg(self.file("tunnel-ca.pem"))
            .args(["--tcp", "127.0.0.1:15001", "--dns", "127.0.0.1:15053"]);
        let mut tunnel = Running::start(&mut command).unwrap();
        tunnel.wait_for("is open", SHORT).unwrap();
        tunnel
    }

    /// curl inside the machine.
    fn curl(&self, arguments: &[&str]) -> Output {
        let mut command = self.network.command("curl");
        command
            .args(["-sS", "--noproxy", "*", "--max-time", "30", "--cacert"])
            .arg(self.file("leaves.pem"))
            .args(arguments);
        command.env_remove("https_proxy").output().unwrap()
    }

    fn reads_the_file(&self) {
        let read = self.curl(&["https://allowed.test:8443/files/hello.txt"]);
        assert!(
            read.status.success() && read.stdout == b"hello from outside\n",
            "{}",
            text(&read)
        );
    }
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat()
}

#[test]
fn a_remote_machine_has_one_way_out_which_outlives_its_gateway_and_ends_with_its_session() {
    assert!(
        rustix::process::geteuid().is_root(),
        "network namespaces with a wire between them need root: run `tests/run` as root"
    );
    let (outside, gateway) = Outside::new();
    outside.certify();
    let mut tunnel = outside.tunnel();
    outside.reads_the_file();

    // What no rule allows is refused in words, by name and by address; there is no other way.
    for refused in ["https://other.test/", "https://allowed.test:8443/etc/passwd"] {
        let answer: Value = serde_json::from_slice(&outside.curl(&[refused]).stdout).unwrap();
        assert_eq!(answer["status"], 403, "{answer}");
        assert_eq!(answer["rule"], "default", "{answer}");
    }
    let by_address = outside.curl(&["http://203.0.113.7/"]);
    assert!(
        text(&by_address).contains("\"status\":403"),
        "{}",
        text(&by_address)
    );
    let proxied = outside.curl(&[
        "--noproxy",
        "",
        "-x",
        "http://127.0.0.1:15001",
        "https://allowed.test:8443/files/hello.txt",
    ]);
    assert_eq!(proxied.stdout, b"hello from outside\n", "{}", text(&proxied));

    // A search reads what was recorded before it; a read is on disk a second later at the latest, and a kill comes sooner.
    let search = "/v1/audit?session=run-1&host=allowed.test";
    let recorded = |outside: &Outside| {
        let records: Vec<Value> = outside.ask("GET", search, &json!({}));
        records.len()
    };
    assert_eq!(recorded(&outside), 3);

    // The gateway is killed and comes back: so does the tunnel, with the certificate that it had.
    gateway.kill().unwrap();
    tunnel.wait_for("made anew", SHORT).unwrap();
    let _gateway = outside.gateway();
    tunnel.wait_for("is open", SHORT).unwrap();
    outside.reads_the_file();

    // A new certificate is taken up without a word to the shim.
    outside.certify();
    tunnel.wait_for("there is a new certificate", SHORT).unwrap();
    outside.reads_the_file();

    assert_eq!(recorded(&outside), 5);
    outside.call("DELETE", "/v1/sessions/run-1", &json!({}));
    let after = outside.curl(&["--max-time", "5", "https://allowed.test:8443/files/hello.txt"]);
    assert!(!after.status.success(), "{}", text(&after));
}
