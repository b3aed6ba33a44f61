//! Both clients against a real HTTP server that speaks their dialect, whole and broken.
mod broken;
mod whole;

use super::types::{Answer, Message, ModelRequest, Part, Role, ToolCall, ToolSpec, Usage};
use super::*;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::sync::mpsc;

pub(super) const KEY: &str = "sk-very-secret";

/// What the server answers, and what it was asked.
#[derive(Clone, Default)]
pub(super) struct Server {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    /// Sent one after another.
    chunks: Vec<String>,
    /// Whether the connection stays open after the last of them.
    pub(super) hangs: bool,
    pub(super) asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

impl Server {
    pub(super) fn stream(chunks: &[&str]) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "text/event-stream; charset=utf-8")],
            chunks: chunks.iter().map(|chunk| (*chunk).to_owned()).collect(),
            ..Self::default()
        }
    }

    pub(super) fn error(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Self {
        Self {
            status,
            headers: headers.to_vec(),
            chunks: vec![body.into()],
            ..Self::default()
        }
    }

    async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/v1/messages", post(answer))
            .route("/chat/completions", post(answer))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        format!("http://{address}")
    }
}

async fn answer(State(provider): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    provider
        .asked
        .lock()
        .unwrap()
        .push((headers, serde_json::from_slice(&body).unwrap()));
    let chunks = stream::iter(provider.chunks.clone()).then(|chunk| async move {
        tokio::task::yield_now().await;
        Ok::<_, std::io::Error>(chunk)
    });
    let body = if provider.hangs {
        Body::from_stream(chunks.chain(stream::pending()))
    } else {
        Body::from_stream(chunks)
    };
    let mut response = Response::builder().status(StatusCode::from_u16(provider.status).unwrap());
    for (name, value) in provider.headers {
        response = response.header(name, value);
    }
    response.body(body).unwrap()
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Dialect {
    Anthropic,
    Openai,
}

pub(super) const BOTH: [Dialect; 2] = [Dialect::Anthropic, Dialect::Openai];

pub(super) fn model(dialect: Dialect, base: &str) -> Arc<dyn Model> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let provider = Provider {
        base_url: base.into(),
        key: Some(SecretString::from(KEY)),
    };
    let limits = Limits {
        start: Duration::from_millis(600),
        idle: Duration::from_millis(300),
    };
    let models = Models::new(ModelConfig {
        anthropic: provider.clone(),
        openai: provider,
        limits,
    })
    .unwrap();
    let (model, base_url) = ("m-1".to_owned(), None);
    models
        .model(&match dialect {
            Dialect::Anthropic => ModelChoice::Anthropic { model, base_url },
            Dialect::Openai => ModelChoice::Openai { model, base_url },
        })
        .unwrap()
}

pub(super) fn history() -> Vec<Message> {
    let call = |id: &str| Part::Call {
        call: ToolCall {
            id: id.into(),
            tool: "bash".into(),
            input: json!({"command": "ls"}),
        },
    };
    let result = |id: &str, ok| Part::Result {
        call: id.into(),
        text: format!("result of {id}"),
        ok,
    };
    let text = |text: &str| Part::Text { text: text.into() };
    vec![
        Message {
            role: Role::User,
            parts: vec![text("task")],
        },
        Message {
            role: Role::Assistant,
            parts: vec![text("hm"), call("a"), call("b")],
        },
        Message {
            role: Role::User,
            parts: vec![result("a", true), result("b", false), text("news")],
        },
    ]
}

pub(super) fn request() -> ModelRequest {
    let tool = ToolSpec {
        name: "bash".into(),
        description: "d".into(),
        schema: json!({"type": "object"}),
    };
    ModelRequest {
        system: "be good".into(),
        messages: history(),
        tools: vec![tool],
        max_tokens: 99,
    }
}

pub(super) async fn ask(dialect: Dialect, provider: &Server) -> (Result<Answer, ModelError>, String) {
    let base = provider.serve().await;
    let (deltas, mut pieces) = mpsc::channel(1000);
    let model = model(dialect, &base);
    let request = request();
    let answer = tokio::time::timeout(Duration::from_secs(10), model.infer(&request, deltas));
    let answer = answer.await.expect("nothing waits silently");
    let mut text = String::new();
    while let Some(piece) = pieces.recv().await {
        text.push_str(&piece);
    }
    (answer, text)
}

pub(super) fn event(data: &Value) -> String {
    match data["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// A whole answer with text and two calls; each element is one event.
pub(super) fn whole(dialect: Dialect) -> Vec<String> {
    let events = match dialect {
        Dialect::Anthropic => vec![
            json!({"type": "message_start", "message": {"id": "x", "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lüük"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"comm"}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "and\": \"ls\"}"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t2", "name": "done", "input": {}}}),
            json!({"type": "content_block_stop", "index": 2}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}),
            json!({"type": "message_stop"}),
        ],
        Dialect::Openai => vec![
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "Let me "}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "lüük"}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "bash", "arguments": ""}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"comm"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "and\": \"ls\"}"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 1, "id": "t2", "function": {"name": "done", "arguments": "{}"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 15, "completion_tokens": 20}}),
        ],
    };
    let mut events: Vec<String> = events.iter().map(event).collect();
    if dialect == Dialect::Openai {
        events.push("data: [DONE]\n\n".into());
    }
    events
}

pub(super) fn of(events: &[String]) -> Server {
    Server::stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The wait asked for, if the fault is a passing one.
pub(super) fn passing(answer: Result<Answer, ModelError>) -> (String, Option<Duration>, Usage) {
    match answer {
        Err(ModelError::Passing {
            why,
            retry_after,
            usage,
        }) => (why, retry_after, usage),
        other => panic!("not a passing fault: {other:?}"),
    }
}
