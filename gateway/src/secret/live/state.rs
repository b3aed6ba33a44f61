//! What is had of one fetched thing, and what is said of what is not.
use super::until::Until;
use crate::secret::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is had of it.
#[derive(Default)]
pub(super) struct State {
    pub(super) values: BTreeMap<String, Arc<Value>>,
    pub(super) trouble: Option<Trouble>,
    /// Whether their time is over, and that was said.
    pub(super) over: bool,
    /// With the moment at which each has ended by itself.
    pub(super) leases: Vec<(String, Option<Instant>)>,
}

/// What went wrong last, and when it is tried again.
#[derive(Clone)]
pub(super) struct Trouble {
    pub(super) sentence: String,
    pub(super) again: Instant,
}

/// A value that may be used.
#[derive(Debug)]
pub struct Given {
    /// The value.
    pub value: Arc<Value>,
    /// Until when.
    pub until: Until,
    /// What is wrong with its source at the moment.
    pub trouble: Option<String>,
}

/// Why a fetched value cannot be had now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It is being fetched for the first time.
    Pending,
    /// Its source has no such field.
    Missing(String),
    /// Its source gives none at the moment.
    Unavailable {
        /// Why.
        sentence: String,
        /// When it is asked again.
        again: Duration,
    },
    /// The operator does not let this policy name it.
    NotAllowed(String),
}

impl State {
    /// Puts other values in place; whether there is any difference.
    pub(super) fn replace(&mut self, fields: BTreeMap<String, Value>) -> bool {
        let same = self.values.len() == fields.len()
            && self
                .values
                .iter()
                .zip(&fields)
                .all(|((name, old), (field, new))| name == field && old.is_same(new));
        if !same {
            self.values = fields
                .into_iter()
                .map(|(name, value)| (name, Arc::new(value)))
                .collect();
        }
        !same
    }
}
