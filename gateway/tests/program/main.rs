//! The program as an operator meets it: exit codes, messages, sockets, restart, stop, the store, the log.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]
mod fetched;
mod names;
mod running;
mod store;

use running::{Running, fails_with, output, program, spec};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

#[test]
fn it_serves_keeps_sessions_over_a_kill_and_stops_in_order() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let mut first = Running::start(state, &[]);
    let (status, health) = first.call("GET", "/healthz", "");
    assert_eq!(status, 200);
    assert!(health.contains(&first.child.id().to_string()), "{health}");
    let (status, ready) = first.call("GET", "/readyz", "");
    assert_eq!((status, ready.as_str()), (200, r#"{"ready":true,"faults":[]}"#));
    assert_eq!(first.call("PUT", "/v1/sessions/r", &spec()).0, 200);
    let (_, before) = first.call("GET", "/v1/sessions/r", "");
    for socket in ["gateway.sock", "handover.sock"] {
        let mode = std::fs::metadata(state.join(socket))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{socket}");
    }
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let mut second = Running::start(state, &[]);
    assert_eq!(second.call("GET", "/v1/sessions/r", "").1, before);
    second.signal(rustix::process::Signal::TERM);
    assert!(second.child.wait().unwrap().success());
    assert!(!state.join("gateway.sock").exists());
    let verified = output(state, &["log", "verify"], "");
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn certificates_for_tunnels_are_signed_where_tunnels_are_taken() {
    let state = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let request = rcgen::CertificateParams::default()
        .serialize_request(&key)
        .unwrap();
    let body = serde_json::json!({"csr": request.pem().unwrap()}).to_string();
    let path = "/v1/sessions/r/certificate";
    {
        let without = Running::start(state.path(), &[]);
        assert_eq!(without.call("PUT", "/v1/sessions/r", &spec()).0, 200);
        let (status, text) = without.call("POST", path, &body);
        assert!(status == 409 && text.contains("--tunnel"), "{status} {text}");
    }
    let authority = |gateway: &Running| -> String {
        let (status, text) = gateway.call("POST", path, &body);
        assert_eq!(status, 200, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["address"], gateway.ready["tunnel"]);
        assert!(answer["certificate_pem"].as_str().unwrap().contains("BEGIN"));
        answer["authority_pem"].as_str().unwrap().to_owned()
    };
    let first = {
        let gateway = Running::start(state.path(), &["--tunnel", "127.0.0.1:0"]);
        for (path, body, status) in [
            ("/v1/sessions/none/certificate", body.as_str(), 404),
            (path, r#"{"csr": "nonsense"}"#, 422),
            (path, "{}", 400),
        ] {
            let (answered, text) = gateway.call("POST", path, body);
            assert_eq!(answered, status, "{path} {body}: {text}");
        }
        authority(&gateway)
    };
    let again = Running::start(state.path(), &["--tunnel", "127.0.0.1:0"]);
    assert_eq!(authority(&again), first, "the authority outlives the process");
}

#[test]
fn metrics_and_health_have_a_socket_of_their_own_and_nothing_else_is_there() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Running::start(state.path(), &["--metrics", "127.0.0.1:0"]);
    let address = gateway.ready["metrics"].as_str().unwrap();
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = get("/metrics");
    for line in [
        "sallyport_connections_total 0",
        "sallyport_connections_open 0",
        "sallyport_phase_seconds_count{phase=\"whole\"} 0",
        "sallyport_upstream_requests_total{connection=\"kept\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(get("/readyz").starts_with("HTTP/1.1 200 "));
    for path in ["/v1/sessions", "/v1/audit", "/v1/secrets"] {
        assert!(get(path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    let taken = output(
        state.path().join("other").as_path(),
        &["serve", "--metrics", address],
        "",
    );
    let text = fails_with(75, &taken);
    assert!(text.contains(address) && text.contains("--metrics"), "{text}");
}

#[test]
fn a_second_gateway_on_one_folder_is_refused_naming_the_first() {
    let state = tempfile::tempdir().unwrap();
    let first = Running::start(state.path(), &[]);
    let text = fails_with(75, &output(state.path(), &["serve"], ""));
    assert!(text.contains(&first.child.id().to_string()), "{text}");
    assert!(text.contains(&state.path().display().to_string()), "{text}");
    assert_eq!(first.call("GET", "/healthz", "").0, 200, "the first one goes on");
}

#[test]
fn what_is_in_the_way_is_named_and_the_exit_code_tells_whose_turn_it_is() {
    let state = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = fails_with(75, &output(state.path(), &["serve", "--proxy", &address], ""));
    assert!(text.contains(&address) && text.contains("--proxy"), "{text}");
    fails_with(2, &output(state.path(), &["serve", "--proxy", "here"], ""));
    fails_with(2, &output(state.path(), &["fly"], ""));
    let text = fails_with(
        2,
        &output(state.path(), &["serve", "--upstream-ca", "/nowhere.pem"], ""),
    );
    assert!(text.contains("/nowhere.pem"), "{text}");
    let text = fails_with(1, &output(Path::new("/proc/nowhere"), &["serve"], ""));
    assert!(text.contains("/proc/nowhere"), "{text}");
    std::fs::remove_dir_all(state.path().join("ca")).unwrap();
    std::fs::write(state.path().join("ca"), "in the way").unwrap();
    let text = fails_with(1, &output(state.path(), &["serve"], ""));
    assert!(text.contains("/ca"), "{text}");
}

#[test]
fn something_else_in_a_sockets_place_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("gateway.sock"), "precious").unwrap();
    let text = fails_with(1, &output(state.path(), &["serve"], ""));
    assert!(text.contains("gateway.sock"), "{text}");
    assert_eq!(
        std::fs::read(state.path().join("gateway.sock")).unwrap(),
        b"precious"
    );
}

#[test]
fn values_go_into_the_store_and_reach_a_running_gateway_and_never_come_out() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Running::start(state.path(), &[]);
    let (_, view) = gateway.call("PUT", "/v1/sessions/r", &spec());
    assert!(
        view.contains("secret set forge") && view.contains("\"credentials\":[]"),
        "{view}"
    );
    let set = output(
        state.path(),
        &["secret", "set", "forge"],
        "ghp_0123456789abcdefABCDEF0123456789\n",
    );
    assert!(set.status.success(), "{set:?}");
    assert_eq!(output(state.path(), &["secret", "list"], "").stdout, b"forge\n");
    // The running gateway was told by a signal; it reads the store as soon as it gets to it.
    let view = (0..200)
        .map(|_| gateway.call("GET", "/v1/sessions/r", "").1)
        .find(|view| view.contains("\"placeholder\":\"ghp_"))
        .expect("the value reaches the session");
    assert!(!view.contains("0123456789abcdefABCDEF"), "{view}");
    assert_eq!(gateway.call("PUT", "/v1/secrets/other", "another value").0, 204);
    assert_eq!(gateway.call("GET", "/v1/secrets", "").1, r#"["forge","other"]"#);
    assert_eq!(gateway.call("DELETE", "/v1/secrets/other", "").0, 204);
    assert!(
        output(state.path(), &["secret", "rm", "forge"], "")
            .status
            .success()
    );
    let text = fails_with(1, &output(state.path(), &["secret", "rm", "forge"], ""));
    assert!(text.contains("`forge`"), "{text}");
    fails_with(1, &output(state.path(), &["secret", "set", "x"], "short\n"));
}

#[test]
fn nonsense_on_the_control_socket_is_a_problem_document() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Running::start(state.path(), &[]);
    for (method, path, body, status) in [
        ("GET", "/v1/sessions/none", "", 404),
        ("GET", "/nowhere", "", 404),
        ("PUT", "/v1/sessions/r", "{", 400),
        (
            "PUT",
            "/v1/sessions/r",
            r#"{"who":{},"policies":[],"extra":1}"#,
            400,
        ),
        ("PUT", "/v1/sessions/a%3Ab", &spec(), 422),
        (
            "PUT",
            "/v1/sessions/r",
            r#"{"who":{},"policies":[{"name":"p","text":"rulez: []"}]}"#,
            422,
        ),
        (
            "POST",
            "/v1/sessions/none/access",
            r#"{"wanted":{"host":"a.test","port":443},"why":""}"#,
            404,
        ),
        ("GET", "/v1/audit?limit=many", "", 400),
        ("GET", "/v1/events?after=x", "", 400),
        ("PUT", "/v1/secrets/x", "short", 422),
    ] {
        let (got, text) = gateway.call(method, path, body);
        assert_eq!(got, status, "{method} {path}: {text}");
        let problem: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(problem["status"], status, "{text}");
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        assert_eq!(
            problem["policy"].is_array(),
            path.ends_with("/r") && status == 422,
            "{text}"
        );
    }
}

#[test]
fn a_rotated_authority_is_for_sessions_to_come_and_a_running_one_keeps_its_own() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Running::start(state.path(), &[]);
    let ca = |text: &str| -> String {
        let view: serde_json::Value = serde_json::from_str(text).unwrap();
        view["ca_pem"].as_str().unwrap().to_owned()
    };
    let put = |id: &str| {
        let (status, view) = gateway.call("PUT", &format!("/v1/sessions/{id}"), &spec());
        assert_eq!(status, 200, "{view}");
        ca(&view)
    };
    let first = put("old");
    let rotated = output(state.path(), &["ca", "rotate", "--ca-permit", "corp.test"], "");
    assert!(rotated.status.success(), "{rotated:?}");
    // The running gateway was told by a signal; it reads the authorities as soon as it gets to it.
    let second = (0..200)
        .map(|number| put(&format!("new-{number}")))
        .find(|pem| *pem != first)
        .expect("sessions to come trust the new one");
    assert_eq!(put("old"), first, "also when its policy is put anew");
    drop(gateway);
    let again = Running::start(state.path(), &[]);
    assert_eq!(ca(&again.call("GET", "/v1/sessions/old", "").1), first);
    let (_, view) = again.call("PUT", "/v1/sessions/newest", &spec());
    assert_eq!(ca(&view), second);
}

#[test]
fn its_memory_is_closed_to_other_processes_and_leaves_no_core() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Running::start(state.path(), &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.child.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(
        core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(),
        ["0", "0"],
        "{core}"
    );
}

/// A ceiling that allows this host alone.
fn ceiling(host: &str) -> String {
    format!(
        "version: 1\nname: c\nwiden: {{credentials: [run]}}\nrules:\n  - {{id: ceiling, to: {{host: {host}}}, effect: allow}}\n"
    )
}

impl Running {
    /// The answer to `GET`, once it is what is awaited.
    fn until(&self, path: &str, right: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let value = serde_json::from_str(&self.call("GET", path, "").1).unwrap();
            if right(&value) {
                return value;
            }
            assert!(std::time::Instant::now() < deadline, "{path}: {value}");
            std::thread::yield_now();
        }
    }

    fn hash(&self) -> String {
        let (_, view) = self.call("GET", "/v1/sessions/r", "");
        let view: serde_json::Value = serde_json::from_str(&view).unwrap();
        view["policy_hash"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_changed_file_is_in_force_by_itself_and_the_same_after_a_kill() {
    let state = tempfile::tempdir().unwrap();
    let mut first = Running::start(state.path(), &[]);
    assert_eq!(first.call("PUT", "/v1/sessions/r", &spec()).0, 200);
    let before = first.hash();
    let file = state.path().join("policies/organisation.yaml");
    std::fs::write(&file, ceiling("a.test")).unwrap();
    first.until("/v1/policies", |all| all["policies"][0]["version"]["number"] == 1);
    let hash = first.hash();
    assert_ne!(hash, before);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let mut second = Running::start(state.path(), &[]);
    assert_eq!(second.hash(), hash);
    std::fs::write(&file, "version: 1\nrulez: []\n").unwrap();
    let all = second.until("/v1/policies", |all| {
        all["policies"][0]["broken"]
            .as_array()
            .is_some_and(|broken| !broken.is_empty())
    });
    assert_eq!(all["policies"][0]["version"]["number"], 1);
    let (_, metrics) = second.call("GET", "/metrics", "");
    for line in [
        "sallyport_policy_broken{policy=\"organisation\"} 1",
        "sallyport_sessions 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    second.child.kill().unwrap();
    second.child.wait().unwrap();
    let third = Running::start(state.path(), &[]);
    assert_eq!(third.hash(), hash, "a broken file changes nothing over a restart");
}

#[test]
fn policies_are_published_rolled_back_and_reloaded_over_the_control_socket() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Running::start(state.path(), &[]);
    assert_eq!(gateway.call("PUT", "/v1/sessions/r", &spec()).0, 200);
    let publication = |host: &str| {
        let texts = serde_json::json!([{"name": "o.yaml", "text": ceiling(host)}]);
        serde_json::json!({"texts": texts, "author": "ada"}).to_string()
    };
    let mut hashes = Vec::new();
    for host in ["a.test", "b.test"] {
        let (status, text) = gateway.call("PUT", "/v1/policies/organisation", &publication(host));
        assert_eq!(status, 200, "{text}");
        hashes.push(gateway.hash());
    }
    let rollback = r#"{"to": 1, "author": "eve"}"#;
    let (status, text) = gateway.call("POST", "/v1/policies/organisation/rollback", rollback);
    assert!(status == 200 && text.contains("rollback to 1"), "{text}");
    assert_eq!(gateway.hash(), hashes[0]);
    let (_, old) = gateway.call("GET", "/v1/policies/organisation/versions/2", "");
    assert!(old.contains("b.test") && old.contains("ada"), "{old}");
    let broken = publication("a.test").replace("rules", "rulez");
    for (method, path, body, status) in [
        ("PUT", "/v1/policies/organisation", broken.as_str(), 422),
        ("PUT", "/v1/policies/run/r", &publication("a.test"), 400),
        ("PUT", "/v1/policies/team/..%2Fx", &publication("a.test"), 400),
        ("GET", "/v1/policies/team/web/versions", "", 404),
        ("GET", "/v1/policies/organisation/versions/9", "", 404),
        (
            "POST",
            "/v1/policies/organisation/rollback",
            r#"{"to": 9, "author": "eve"}"#,
            404,
        ),
        (
            "POST",
            "/v1/policies/organisation/rollback",
            r#"{"to": 1, "author": ""}"#,
            422,
        ),
    ] {
        let (got, text) = gateway.call(method, path, body);
        assert_eq!(got, status, "{method} {path}: {text}");
    }
    let file = state.path().join("policies/teams/web.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, ceiling("c.test").replace("id: ceiling", "id: team")).unwrap();
    let (status, text) = gateway.call("POST", "/v1/policies/reload", "");
    assert!(status == 200 && text.contains("team/web"), "{text}");
    std::fs::write(&file, ceiling("d.test").replace("id: ceiling", "id: team")).unwrap();
    gateway.signal(rustix::process::Signal::HUP);
    gateway.until("/v1/policies", |all| all["policies"][1]["version"]["number"] == 2);
}

fn authority_pem() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn a_bundle_of_the_system_that_is_gone_takes_no_trust_away() {
    let state = tempfile::tempdir().unwrap();
    let bundle = state.path().join("system.pem");
    std::fs::write(&bundle, format!("{}{}", authority_pem(), authority_pem())).unwrap();
    let mut command = program(&state.path().join("gateway"));
    command.env("SSL_CERT_FILE", &bundle);
    let mut gateway = Running::of(command, &[], Stdio::piped());
    let mut log = gateway.hear();
    let mut told = || {
        gateway.signal(rustix::process::Signal::HUP);
        log.find(|line| line.contains("authorities trusted upstream"))
            .unwrap()
    };
    std::fs::write(&bundle, "").unwrap();
    let kept = told();
    assert!(
        kept.contains("0 of the system") && kept.contains("stay in force"),
        "{kept}"
    );
    std::fs::remove_file(&bundle).unwrap();
    let kept = told();
    assert!(kept.contains("stay in force"), "{kept}");
    // One fewer in a file that is whole is what an operator may want.
    std::fs::write(&bundle, authority_pem()).unwrap();
    let anew = told();
    assert!(
        anew.contains("\"system\":1") && anew.contains("read anew"),
        "{anew}"
    );
}

#[test]
fn a_signal_reads_the_authorities_trusted_upstream_anew_or_says_why_the_old_ones_stay() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("upstream.pem");
    std::fs::write(&file, authority_pem()).unwrap();
    let named = ["--upstream-ca", file.to_str().unwrap()];
    let (gateway, mut log) = Running::start_heard(&state.path().join("gateway"), &named);
    let mut told = |pem: &str| {
        std::fs::write(&file, pem).unwrap();
        gateway.signal(rustix::process::Signal::HUP);
        log.find(|line| line.contains("authorities trusted upstream"))
            .unwrap()
    };
    let two = told(&format!("{}{}", authority_pem(), authority_pem()));
    assert!(
        two.contains("\"own\":2") && two.contains("\"changed\":true"),
        "{two}"
    );
    for (broken, why) in [("", "no certificate"), ("-----BEGIN CERTIFICATE-----\n!", "")] {
        let kept = told(broken);
        assert!(
            kept.contains("stay in force") && kept.contains("upstream.pem"),
            "{kept}"
        );
        assert!(kept.contains(why), "{kept}");
    }
    assert_eq!(gateway.call("GET", "/readyz", "").0, 200);
}

#[test]
fn a_collector_that_is_down_is_said_once_and_holds_up_neither_start_nor_end() {
    let state = tempfile::tempdir().unwrap();
    let (mut gateway, log) = Running::start_heard(state.path(), &["--otlp", "http://127.0.0.1:1"]);
    let (status, view) = gateway.call("PUT", "/v1/sessions/r", &spec());
    assert_eq!(status, 200, "{view}");
    let view: serde_json::Value = serde_json::from_str(&view).unwrap();
    let pair = format!("r:{}", view["proxy_token"].as_str().unwrap());
    let pair = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pair);
    let mut proxy = std::net::TcpStream::connect(gateway.ready["proxy"].as_str().unwrap()).unwrap();
    let request = "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n";
    write!(proxy, "{request}Proxy-Authorization: Basic {pair}\r\n\r\n").unwrap();
    let mut answer = String::new();
    proxy.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.child.wait().unwrap().success());
    let said: Vec<String> = log
        .filter(|line| line.contains("do not reach the collector"))
        .collect();
    assert_eq!(said.len(), 1, "{said:?}");
    let wrong = output(state.path(), &["serve", "--otlp", "collector.test"], "");
    assert!(fails_with(2, &wrong).contains("http://HOST:4318"));
}

#[test]
fn an_empty_address_of_a_collector_in_the_environment_is_none() {
    let state = tempfile::tempdir().unwrap();
    let mut command = program(state.path());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "");
    let mut gateway = Running::of(command, &[], Stdio::inherit());
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.child.wait().unwrap().success());
    let asked = ["serve", "--otlp", ""];
    assert!(fails_with(2, &output(state.path(), &asked, "")).contains("http://HOST:4318"));
}

#[test]
fn the_names_that_opentelemetry_has_for_everything_are_known_here_too() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", collector.local_addr().unwrap());
    let state = tempfile::tempdir().unwrap();
    let mut command = program(state.path());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
    command.env("OTEL_SERVICE_NAME", "north-door");
    command.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging");
    let mut gateway = Running::of(command, &[], Stdio::inherit());
    let mut proxy = std::net::TcpStream::connect(gateway.ready["proxy"].as_str().unwrap()).unwrap();
    write!(
        proxy,
        "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    assert!(proxy.read_to_string(&mut String::new()).unwrap() > 0);
    gateway.signal(rustix::process::Signal::TERM);
    let (mut spans, mut sent) = (collector.accept().unwrap().0, String::new());
    let words = ["v1/traces", "north-door", "staging"];
    while !words.iter().all(|word| sent.contains(word)) {
        let mut piece = [0; 4096];
        let count = spans.read(&mut piece).unwrap();
        assert!(count > 0, "{sent}");
        sent.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    write!(spans, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(gateway.child.wait().unwrap().success());
}
