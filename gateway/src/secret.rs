//! Secrets: the only module in which values exist.
//!
//! A *binding* ties a credential of the policy to its value and to the placeholders that stand for it in one session.
//! Values are read from a [`source`], never shown: no type here that holds one derives `Debug`, `Clone` or `Serialize`.
//! Searching works on patterns made from the values, which are wiped with the last use of the session; of the tables over them, those
//! that know four bytes of each are not.
use crate::control::types::AuditRecord;
use http::{HeaderMap, HeaderValue};
use sallyport_policy::Place;
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;
use zeroize::Zeroizing;

mod both;
mod candidates;
pub mod capture;
pub mod client_certificate;
mod common;
mod dictionary;
pub mod fill;
pub(crate) mod forms;
pub mod guard;
pub mod head;
pub mod leak;
pub mod live;
pub mod locked;
pub mod log_in;
pub mod pack_guard;
pub mod placeholder;
pub mod places;
pub mod proxy_login;
pub mod redact;
mod sampled;
pub(crate) mod scanner;
mod sealed;
mod shapes;
pub mod sigv4;
mod skip;
pub mod source;
pub mod ssh;
mod ssh_key;
pub mod store;
mod stray;
pub mod substitute;
mod target;
mod value;

pub use guard::BodyGuard;
pub use head::Outbound;
pub use leak::Leak;
pub use live::Until;
pub use pack_guard::PackGuard;
pub use redact::Redactor;
pub use source::Sources;
pub use store::SecretStore;
pub use value::Value;

use both::Both;
use scanner::{Pattern, Scanner};

/// Shortest value that is bound, in bytes: anything shorter would be found by chance in ordinary traffic.
pub const SHORTEST_VALUE: usize = 8;
/// Longest value that is bound, in bytes; also the bound of what a redactor may hold back (times six, for escapes).
pub const LONGEST_VALUE: usize = 16 * 1024;

/// One credential of a session.
#[derive(Default)]
pub struct Binding {
    /// Name in the policy.
    pub name: String,
    /// Where it may stand.
    pub places: Vec<Place>,
    /// What the agent holds instead: the first is shown, the others were minted for values of another shape.
    pub placeholders: Vec<String>,
    /// The value in force, if its source has one.
    pub value: Option<Arc<Value>>,
    /// Until when that may be used.
    pub until: Until,
    /// Why there is none.
    pub absence: Option<Absence>,
    /// Values before it, still taken out of answers.
    pub old_values: Vec<Old>,
}

/// A value that is no longer in force.
#[derive(Debug, Clone)]
pub struct Old {
    /// The value.
    pub value: Arc<Value>,
    /// Since when.
    pub since: Instant,
}

/// Why a credential has no value that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Sentence for who wants to use it.
    pub sentence: String,
    /// Seconds after which its source may have one.
    pub retry_after_s: Option<u64>,
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("name", &self.name)
            .field("places", &self.places)
            .field("has_value", &self.value.is_some())
            .finish_non_exhaustive()
    }
}

/// What one session may use: placeholders, values, and the search for both. Immutable; a change makes a new one.
pub struct SessionSecrets {
    bindings: Vec<Binding>,
    /// Names of the bindings, shared with everything that finds something.
    names: Arc<[String]>,
    values: Option<Arc<Scanner>>,
    placeholders: Option<Arc<Scanner>>,
    both: Option<Arc<Both>>,
    identities: Vec<client_certificate::Loaded>,
    /// Some credential may stand in a body.
    fills_bodies: bool,
    keys: Vec<sigv4::Bound>,
}

impl fmt::Debug for SessionSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSecrets")
            .field("bindings", &self.bindings)
            .finish_non_exhaustive()
    }
}

/// Why the search could not be prepared: too many values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the session's secrets are too many to search for: {0}")]
pub struct TooLarge(pub String);

impl SessionSecrets {
    /// Prepares the search for a session's bindings. Costs a millisecond for some twenty; done once for each set of values.
    pub fn new(bindings: Vec<Binding>) -> Result<Self, TooLarge> {
        let mut values = Vec::new();
        let mut placeholders = Vec::new();
        for (owner, binding) in bindings.iter().enumerate() {
            for value in binding
                .value
                .iter()
                .chain(binding.old_values.iter().map(|old| &old.value))
            {
                let Some(stand_in) = binding.stand_in(value) else {
                    continue;
                };
                for (part, stand_in) in binding.parts(value, stand_in) {
                    let forms = forms::forms(&part, stand_in.as_bytes());
                    values.extend(forms.into_iter().map(|(pattern, replacement)| Pattern {
                        pattern,
                        replacement,
                        owner,
                    }));
                }
            }
            let held = binding
                .placeholders
                .iter()
                .flat_map(|text| binding.held_parts(text));
            placeholders.extend(held.map(|text| Pattern {
                pattern: text.as_bytes().to_vec().into(),
                replacement: text.into_bytes(),
                owner,
            }));
        }
        let identities = client_certificate::load(bindings.iter().map(|binding| {
            (
                binding.name.as_str(),
                binding.places.as_slice(),
                binding.value.as_deref(),
            )
        }));
        let values = Scanner::build(values)?.map(Arc::new);
        let placeholders = Scanner::build(placeholders)?.map(Arc::new);
        let both = values.clone().zip(placeholders.clone());
        let mut places = bindings.iter().flat_map(|binding| &binding.places);
        let fills_bodies = places.any(fill::is_in_a_body);
        Ok(Self {
            identities,
            fills_bodies,
            keys: sigv4::bound(&bindings),
            both: both.map(|(values, placeholders)| Arc::new(Both::new([values, placeholders]))),
            values,
            placeholders,
            names: bindings.iter().map(|binding| binding.name.clone()).collect(),
            bindings,
        })
    }

    /// A session without any credential.
    pub fn none() -> Self {
        Self {
            bindings: Vec::new(),
            names: Arc::default(),
            values: None,
            placeholders: None,
            both: None,
            identities: Vec::new(),
            fills_bodies: false,
            keys: Vec::new(),
        }
    }

    /// The bindings, in the policy's order.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// Takes values out of headers or trailers; the names of what was found.
    pub fn redact_headers(&self, headers: &mut HeaderMap) -> Vec<String> {
        let Some(scanner) = &self.values else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for value in headers.values_mut() {
            let Some((clean, owners)) = scanner.replace_all(value.as_bytes()) else {
                continue;
            };
            found.extend(owners.into_iter().map(|owner| self.bindings[owner].name.clone()));
            // A placeholder has the value's own character classes, so this cannot fail; if it did, nothing leaks.
            *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static("redacted"));
        }
        found.sort();
        found.dedup();
        found
    }

    /// A streaming redactor for one body, or none where there is nothing to look for.
    pub fn redactor(&self) -> Option<Redactor> {
        Some(Redactor::new(Some(self.values.clone()?), self.names.clone()))
    }

    /// One for a stream that may outlive these secrets: what becomes secret meanwhile is looked for too. None where the session
    /// has no credentials.
    pub fn redactor_following(
        &self,
        latest: impl Fn() -> Arc<Self> + Send + Sync + 'static,
    ) -> Option<Redactor> {
        if self.bindings.is_empty() {
            return None;
        }
        let latest = move || {
            let now = latest();
            (now.values.clone(), now.names.clone())
        };
        Some(Redactor::new(self.values.clone(), self.names.clone()).following(Box::new(latest)))
    }

    /// Whether there is something to look for in outgoing bodies.
    pub fn guards_bodies(&self) -> bool {
        self.values.is_some() || self.placeholders.is_some()
    }

    /// Takes values out of every text of a record, so that the log never holds one.
    pub fn scrub(&self, record: &mut AuditRecord) {
        let Some(scanner) = &self.values else { return };
        let scrub = |text: &mut String| {
            if let Some((clean, _)) = scanner.replace_all(text.as_bytes()) {
                *text = String::from_utf8_lossy(&clean).into_owned();
            }
        };
        for text in [
            &mut record.host,
            &mut record.rule,
            &mut record.reason,
            &mut record.ending,
            &mut record.user,
        ] {
            scrub(text);
        }
        for text in [
            record.method.as_mut(),
            record.path.as_mut(),
            record.login.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            scrub(text);
        }
        record
            .who
            .iter_mut()
            .flat_map(|who| who.values_mut())
            .for_each(scrub);
        if let Some(refusal) = &mut record.refusal {
            scrub(&mut refusal.reason.text);
            if let Some(hint) = &mut refusal.hint {
                scrub(hint);
            }
        }
    }
}

impl Binding {
    /// The value, where there is one that may be used now; otherwise why there is none.
    pub fn usable(&self) -> Result<Arc<Value>, Absence> {
        let over = self.until.is_over();
        if let Some(value) = self.value.as_ref().filter(|_| !over) {
            return Ok(value.clone());
        }
        let name = &self.name;
        Err(self.absence.clone().unwrap_or_else(|| match over {
            true => Absence {
                sentence: format!(
                    "the time of credential `{name}` is over, and its source has not given another one yet"
                ),
                retry_after_s: Some(1),
            },
            false => Absence {
                sentence: format!(
                    "credential `{name}` has no value at the moment; the session's warnings say why"
                ),
                retry_after_s: None,
            },
        }))
    }
    /// The placeholder that has a value's shape.
    pub fn stand_in(&self, value: &Value) -> Option<&str> {
        let fitting = |text: &&String| match self.is_of_keys() {
            true => sigv4::keys::fits(text, value),
            false => placeholder::fits(text, value),
        };
        self.placeholders.iter().find(fitting).map(String::as_str)
    }

    /// What is looked for of a value, each part with what stands for it.
    fn parts(&self, value: &Value, stand_in: &str) -> Vec<(Zeroizing<Vec<u8>>, String)> {
        match self.is_of_keys() {
            true => sigv4::keys::parts(value, stand_in),
            false => {
                let whole = (Zeroizing::new(value.bytes().to_vec()), stand_in.to_owned());
                std::iter::once(whole)
                    .chain(capture::signature(value, stand_in))
                    .collect()
            }
        }
    }

    /// The texts of a placeholder that are looked for.
    fn held_parts(&self, placeholder: &str) -> Vec<String> {
        match self.is_of_keys() {
            true => sigv4::keys::shown(placeholder)
                .into_iter()
                .map(|(_, text)| text)
                .collect(),
            false => vec![placeholder.to_owned()],
        }
    }

    /// Whether its value is an access key with several parts, each with a placeholder of its own.
    fn is_of_keys(&self) -> bool {
        self.places.contains(&Place::AwsSigv4)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
