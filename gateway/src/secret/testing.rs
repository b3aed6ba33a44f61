//! A secret and what stands for it, for tests.
use super::{Binding, SessionSecrets, Value, placeholder};
use sallyport_policy::{
    CanonicalPath, Decision, Destination, Host, HttpRequest, Moment, Overlay, Permit, Policy, PolicyText,
    Request, Who,
};
use std::sync::Arc;

/// The value behind the credential `forge` of [`secrets`].
pub(crate) const SECRET: &str = "ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f";

/// A credential of this value with one placeholder, for no place.
pub(crate) fn bound(name: &str, value: &str) -> Binding {
    let value = Value::new(value.as_bytes().to_vec());
    let text = placeholder::mint(&value).unwrap().unwrap().text;
    Binding {
        name: name.into(),
        placeholders: vec![text],
        value: Some(Arc::new(value)),
        ..Binding::default()
    }
}

/// A session's one credential, `forge`, and its placeholder.
pub(crate) fn secrets() -> (Arc<SessionSecrets>, String) {
    let binding = bound("forge", SECRET);
    let text = binding.placeholders[0].clone();
    (Arc::new(SessionSecrets::new(vec![binding]).unwrap()), text)
}

/// The right to send a credential, with this place, to `bucket.test`.
pub(crate) fn permit(name: &str, place: &str) -> Permit {
    let text = format!(
        "version: 1\ncredentials: {{{name}: {{from: {{store: {name}}}, hosts: [bucket.test], in: [\"{place}\"]}}}}\n\
         rules: [{{id: all, to: {{host: bucket.test}}, use: [{name}], effect: allow}}]\n"
    );
    permit_under(text, "bucket.test")
}

/// `GET /` at a host, inside TLS.
pub(crate) fn get(host: &str) -> Request {
    Request {
        destination: Destination {
            host: Host::parse(host).unwrap(),
            port: 443,
        },
        moment: Moment::Http(HttpRequest {
            method: "GET".into(),
            path: CanonicalPath::parse("/").unwrap(),
            query: None,
            tls: true,
            headers: Vec::new(),
            pushed: None,
        }),
    }
}

/// The right to `GET /` at a host under a policy.
pub(crate) fn permit_under(policy: String, host: &str) -> Permit {
    let text = PolicyText {
        name: "test.yaml".into(),
        text: policy,
    };
    let policy = Policy::compile(&[text]).unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    match policy.decide(&get(host), &Who::default(), &Overlay::default(), now) {
        Decision::Allow(permit) => permit,
        other => panic!("{other:?}"),
    }
}
