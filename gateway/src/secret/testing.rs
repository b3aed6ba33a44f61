//! A secret and what stands for it, for tests.
use super::{Binding, SessionSecrets, Value, placeholder};
use std::sync::Arc;

/// The value behind the credential `forge` of [`secrets`].
pub(crate) const SECRET: &str = "ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f";

/// A credential of this value with one placeholder, for no place.
pub(crate) fn bound(name: &str, value: &str) -> Binding {
    let value = Value::new(value.as_bytes().to_vec());
    let text = placeholder::mint(&value).unwrap().unwrap().text;
    Binding {
        name: name.into(),
        places: Vec::new(),
        placeholders: vec![text],
        value: Some(Arc::new(value)),
        old_values: Vec::new(),
    }
}

/// A session's one credential, `forge`, and its placeholder.
pub(crate) fn secrets() -> (Arc<SessionSecrets>, String) {
    let binding = bound("forge", SECRET);
    let text = binding.placeholders[0].clone();
    (Arc::new(SessionSecrets::new(vec![binding]).unwrap()), text)
}
