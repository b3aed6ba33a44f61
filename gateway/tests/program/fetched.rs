//! The file of services that secrets are fetched from: wrong, with nobody at its address, and mended while the gateway runs.
use crate::running::{Running, fails_with, output};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const NOBODY: &str = "vault:\n  address: http://127.0.0.1:1\n  auth: {approle: {role-id: gateway, secret-id: {store: vault-secret-id}}}\n  allow: [kv/agents/*]\n";

const POLICY: &str = r#"
version: 1
credentials:
  model: {from: {vault: kv/agents/model, field: key}, hosts: [a.test], in: [bearer], env: MODEL_KEY}
rules:
  - {id: a, to: {host: a.test}, use: [model], effect: allow}
"#;

#[test]
fn a_wrong_file_of_sources_keeps_it_from_starting_and_a_missing_one_is_none() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("sources.yaml");
    std::fs::write(&file, NOBODY.replace("allow", "alow")).unwrap();
    let text = fails_with(1, &output(state.path(), &["serve"], ""));
    assert!(text.contains("sources.yaml") && text.contains("alow"), "{text}");
    std::fs::remove_file(&file).unwrap();
    let text = fails_with(
        1,
        &output(state.path(), &["serve", "--sources", "/nowhere.yaml"], ""),
    );
    assert!(text.contains("/nowhere.yaml"), "{text}");
    drop(Running::start(state.path(), &[]));
}

#[test]
fn a_vault_that_is_not_there_is_said_where_it_matters_and_holds_up_no_run() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("sources.yaml");
    std::fs::write(&file, NOBODY).unwrap();
    output(
        state.path(),
        &["secret", "set", "vault-secret-id"],
        "Ab3dEf6hIj9lMn0pQr2t",
    );
    let gateway = Running::start(state.path(), &[]);
    let spec = serde_json::json!({"who": {"run": "r"}, "policies": [{"name": "p.yaml", "text": POLICY}]});
    let (status, answer) = gateway.call("PUT", "/v1/sessions/r", &spec.to_string());
    assert_eq!(status, 200, "{answer}");
    assert!(
        answer.contains("`model` is not bound: Vault cannot be reached") && answer.contains("MODEL_KEY"),
        "a warning, and a placeholder that works as soon as there is a value: {answer}"
    );
    let (status, ready) = gateway.call("GET", "/readyz", "");
    assert!(
        status == 503 && ready.contains("Vault cannot be reached"),
        "{status} {ready}"
    );
    let (_, metrics) = gateway.call("GET", "/metrics", "");
    let failed = "sallyport_secret_calls_total{source=\"vault\",call=\"fetch\",outcome=\"failed\"}";
    assert!(metrics.contains(failed), "{metrics}");
    std::fs::write(&file, "").unwrap();
    gateway.signal(Signal::HUP);
    let began = Instant::now();
    while gateway.call("GET", "/readyz", "").0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(10), "it was read anew");
    }
}
