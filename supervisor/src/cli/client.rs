//! Client of a running supervisor: the HTTP API over the unix socket in its state directory.
use super::{Failure, RETRY_LATER};
use crate::conversation::Entry;
use crate::runs::{RunRequest, RunSummary};
use crate::state_dir::StateDir;
use crate::web::api::{Change, LoginAddress, Message, Texts};
use futures_util::stream::StreamExt as _;
use http::Method;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use sallyport_gateway::control::types::{
    AuditQuery, AuditRecord, PolicyEdition, PolicyKey, PolicyVersion, Problem, StandingPolicies,
};
use serde::de::DeserializeOwned;
use std::ops::ControlFlow;
use std::time::Duration;

/// Talks to one supervisor.
#[derive(Debug, Clone)]
pub(super) struct Supervisor {
    client: Client,
    state: String,
}

impl Supervisor {
    /// For the supervisor of a state directory; whether it is up shows at the first call.
    pub(super) fn of(state: &StateDir) -> Result<Self, Failure> {
        let client = Client::builder()
            .unix_socket(state.supervisor_socket())
            .build()
            .map_err(|error| Failure::new(format!("no HTTP client: {error}")))?;
        Ok(Self {
            client,
            state: state.root().display().to_string(),
        })
    }

    /// Whether a supervisor answers.
    pub(super) async fn is_up(&self) -> bool {
        self.request(Method::GET, "/healthz")
            .timeout(Duration::from_secs(5))
            .send()
            .await
            .is_ok()
    }

    pub(super) async fn runs(&self) -> Result<Vec<RunSummary>, Failure> {
        self.read(self.request(Method::GET, "/api/runs")).await
    }

    pub(super) async fn run(&self, id: &str) -> Result<RunSummary, Failure> {
        self.read(self.request(Method::GET, &run_path(id, ""))).await
    }

    /// The conversation so far.
    pub(super) async fn entries(&self, id: &str) -> Result<Vec<Entry>, Failure> {
        self.read(self.request(Method::GET, &run_path(id, "/entries")))
            .await
    }

    pub(super) async fn start(&self, request: &RunRequest, key: &str) -> Result<RunSummary, Failure> {
        let call = self
            .request(Method::POST, "/api/runs")
            .header("idempotency-key", key)
            .json(request);
        self.read(call).await
    }

    pub(super) async fn say(&self, id: &str, text: &str) -> Result<(), Failure> {
        let message = Message {
            text: text.to_owned(),
        };
        self.send(
            self.request(Method::POST, &run_path(id, "/messages"))
                .json(&message),
        )
        .await
        .map(drop)
    }

    pub(super) async fn stop(&self, id: &str) -> Result<(), Failure> {
        self.send(self.request(Method::POST, &run_path(id, "/stop")))
            .await
            .map(drop)
    }

    pub(super) async fn login_address(&self) -> Result<String, Failure> {
        let made: LoginAddress = self
            .read(self.request(Method::POST, "/api/login-addresses"))
            .await?;
        Ok(made.address)
    }

    pub(super) async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, Failure> {
        self.read(self.request(Method::GET, "/api/audit").query(query))
            .await
    }

    pub(super) async fn policies(&self) -> Result<StandingPolicies, Failure> {
        self.read(self.request(Method::GET, "/api/policies")).await
    }

    pub(super) async fn policy_versions(&self, key: &PolicyKey) -> Result<Vec<PolicyVersion>, Failure> {
        let path = format!("/api/policies/{key}/versions");
        self.read(self.request(Method::GET, &path)).await
    }

    pub(super) async fn policy_version(
        &self,
        key: &PolicyKey,
        number: u64,
    ) -> Result<PolicyEdition, Failure> {
        let path = format!("/api/policies/{key}/versions/{number}");
        self.read(self.request(Method::GET, &path)).await
    }

    pub(super) async fn publish_policy(
        &self,
        key: &PolicyKey,
        texts: &Texts,
    ) -> Result<PolicyVersion, Failure> {
        let path = format!("/api/policies/{key}");
        self.read(self.request(Method::PUT, &path).json(texts)).await
    }

    pub(super) async fn change_policy(
        &self,
        key: &PolicyKey,
        change: &Change,
    ) -> Result<PolicyVersion, Failure> {
        let path = format!("/api/policies/{key}");
        self.read(self.request(Method::POST, &path).json(change)).await
    }

    /// Hands every entry after a sequence to `each`, until that breaks or the stream ends; gives the last sequence.
    pub(super) async fn follow(
        &self,
        id: &str,
        after: u64,
        mut each: impl FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<u64, Failure> {
        let call = self
            .request(Method::GET, &run_path(id, "/events"))
            .query(&[("after", after)]);
        let mut pieces = self.send(call).await?.bytes_stream();
        let mut lines = Lines::default();
        let mut last = after;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| self.broken(&error))?;
            for data in lines.push(&piece) {
                let entry: Entry = serde_json::from_slice(&data).map_err(|error| {
                    Failure::new(format!("the supervisor's event makes no sense: {error}"))
                })?;
                last = entry.sequence;
                if each(entry).is_break() {
                    return Ok(last);
                }
            }
        }
        Ok(last)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://localhost{path}"))
    }

    async fn read<T: DeserializeOwned>(&self, call: RequestBuilder) -> Result<T, Failure> {
        let response = self.send(call).await?;
        response
            .json()
            .await
            .map_err(|error| Failure::new(format!("the supervisor's answer makes no sense: {error}")))
    }

    async fn send(&self, call: RequestBuilder) -> Result<Response, Failure> {
        let response = call.send().await.map_err(|error| {
            if error.is_connect() {
                self.missing()
            } else {
                self.broken(&error)
            }
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let problem = response
            .json::<Problem>()
            .await
            .unwrap_or_else(|_| unreadable(status));
        Err(Failure::from_problem(&problem))
    }

    /// Nobody answers on the state directory.
    pub(super) fn missing(&self) -> Failure {
        let state = &self.state;
        let text = format!(
            "no supervisor runs on `{state}`; start one with `sallyport up`, or name another directory with --state DIR"
        );
        Failure::with_code(RETRY_LATER, text)
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        let text = format!("the supervisor on `{}` broke off: {why}", self.state);
        Failure::with_code(RETRY_LATER, text)
    }
}

fn unreadable(status: StatusCode) -> Problem {
    Problem {
        title: "Error".to_owned(),
        status: status.as_u16(),
        detail: format!("the supervisor answered {status} without saying why"),
        policy: Vec::new(),
    }
}

fn run_path(id: &str, rest: &str) -> String {
    let mut url = String::from("/api/runs/");
    url.extend(url::form_urlencoded::byte_serialize(id.as_bytes()));
    url + rest
}

/// Cuts a server-sent event stream into the `data` of its events. The supervisor writes one data line an event.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) -> Vec<Vec<u8>> {
        self.rest.extend_from_slice(piece);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        whole
            .split(|&byte| byte == b'\n')
            .filter_map(|line| line.strip_prefix(b"data:"))
            .map(|data| data.trim_ascii().to_vec())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn events_are_the_same_however_the_stream_is_cut(cut in 0_usize..48) {
            let stream = b": hello\n\nid: 1\ndata: {\"a\":1}\n\nid: 2\ndata: {}\n\n";
            let mut lines = Lines::default();
            let at = cut.min(stream.len());
            let mut found = lines.push(&stream[..at]);
            found.extend(lines.push(&stream[at..]));
            proptest::prop_assert_eq!(found, vec![b"{\"a\":1}".to_vec(), b"{}".to_vec()]);
        }
    }

    #[test]
    fn a_run_id_cannot_leave_its_place_in_the_path() {
        assert_eq!(run_path("../x?y", "/stop"), "/api/runs/..%2Fx%3Fy/stop");
    }
}
