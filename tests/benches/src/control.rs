//! The gateway as it is measured: policy, twenty credentials with values, redaction and audit on.
use crate::target::User;
use anyhow::Context;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Credentials that are bound to the origin.
const CREDENTIALS: usize = 20;
/// Rules that fit nothing here, before the one that does.
const OTHER_RULES: usize = 20;

/// The control API of a gateway that runs on a state folder.
pub(crate) struct Control {
    socket: PathBuf,
}

impl Control {
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            socket: state.join("gateway.sock"),
        }
    }

    /// Where it is asked.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Stores the values of all credentials.
    pub(crate) async fn store_values(&self) -> anyhow::Result<()> {
        for number in 0..CREDENTIALS {
            let value = format!("ghp_{}", letters(number));
            self.call("PUT", &format!("/v1/secrets/c{number}"), &value)
                .await?;
        }
        Ok(())
    }

    /// Opens a session and gives the user under whose name its requests come, with a placeholder to send.
    pub(crate) async fn open(&self, session: &str, origin_ca_pem: &str) -> anyhow::Result<User> {
        let spec = json!({
            "who": {"run": session, "user": "bench"},
            "policies": [{"name": "policy.yaml", "text": policy()?}],
            "upstream_roots_pem": origin_ca_pem,
        });
        let answer = self
            .call("PUT", &format!("/v1/sessions/{session}"), &spec.to_string())
            .await?;
        let view: Value = serde_json::from_str(&answer)?;
        let credentials = view["credentials"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(
            credentials == CREDENTIALS,
            "{credentials} credentials instead of {CREDENTIALS}: {}",
            view["warnings"]
        );
        let token = view["proxy_token"].as_str().context("no proxy token")?;
        let placeholder = view["credentials"][0]["placeholder"].as_str();
        Ok(User::new(session, token, placeholder.context("no placeholder")?))
    }

    /// PEM of the authority that signs leaves.
    pub(crate) async fn authority(&self, session: &str) -> anyhow::Result<String> {
        let answer = self.call("GET", &format!("/v1/sessions/{session}"), "").await?;
        let view: Value = serde_json::from_str(&answer)?;
        Ok(view["ca_pem"].as_str().context("no authority")?.to_owned())
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        anyhow::ensure!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
        Ok(body.to_owned())
    }
}

/// A policy as long as real ones.
fn policy() -> anyhow::Result<String> {
    let mut text = "version: 1\nname: bench\ndefault: deny\ncredentials:\n".to_owned();
    let mut uses = Vec::new();
    for number in 0..CREDENTIALS {
        writeln!(
            text,
            "  c{number}: {{from: {{store: c{number}}}, hosts: [\"*.bench.test\"], in: [bearer]}}"
        )?;
        uses.push(format!("c{number}"));
    }
    text.push_str("rules:\n");
    for number in 0..OTHER_RULES {
        writeln!(
            text,
            "  - {{id: other-{number}, to: {{host: \"*.other-{number}.test\", methods: [GET], path: \"/v1/**\"}}, effect: allow}}"
        )?;
    }
    writeln!(
        text,
        "  - {{id: bench, to: {{host: [\"*.bench.test\", 127.0.0.0/8], port: [443, 8443], private: true}}, use: [{}], effect: allow}}",
        uses.join(", ")
    )?;
    Ok(text)
}

/// 36 letters and digits, other ones for each number: values of a real shape without a chance hit in what is measured.
fn letters(number: usize) -> String {
    const ALPHABET: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut state = number as u64 + 1;
    let mut next = || {
        // Numerical Recipes' generator; its upper bits are even enough for this.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(ALPHABET[(state >> 33) as usize % ALPHABET.len()])
    };
    (0..36).map(|_| next()).collect()
}
