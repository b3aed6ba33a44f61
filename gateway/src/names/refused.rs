//! Names whose refusal a machine was told: each has one record and one id, for as long as the policy stays the same.
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The refused names of one session.
#[derive(Debug)]
pub struct Refused {
    told: Mutex<HashMap<String, Told>>,
    limit: usize,
}

#[derive(Debug, Clone)]
struct Told {
    id: String,
    policy_hash: String,
}

/// What to do about a refused name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Telling {
    /// It is told for the first time: a record under its id.
    New,
    /// It was told under this id.
    Again(String),
    /// One too many, the first such: a record that says that there are no more.
    TooMany,
    /// One too many.
    Nothing,
}

impl Refused {
    /// None yet; `limit` is the most that are told apart.
    pub fn new(limit: usize) -> Self {
        Self {
            told: Mutex::default(),
            limit,
        }
    }

    /// Notes that a name is refused under a policy by the decision `id`.
    pub fn tell(&self, name: &str, id: &str, policy_hash: &str) -> Telling {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match told.get(name) {
            Some(before) if before.policy_hash == policy_hash => return Telling::Again(before.id.clone()),
            None if told.len() > self.limit => return Telling::Nothing,
            _ => {}
        }
        let full = told.len() == self.limit && !told.contains_key(name);
        told.insert(
            name.to_owned(),
            Told {
                id: id.to_owned(),
                policy_hash: policy_hash.to_owned(),
            },
        );
        if full { Telling::TooMany } else { Telling::New }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_told_once_under_one_policy_and_a_flood_is_told_once() {
        let refused = Refused::new(2);
        assert_eq!(refused.tell("a.test", "1", "p"), Telling::New);
        assert_eq!(refused.tell("a.test", "2", "p"), Telling::Again("1".into()));
        assert_eq!(refused.tell("a.test", "3", "q"), Telling::New);
        assert_eq!(refused.tell("b.test", "4", "q"), Telling::New);
        assert_eq!(refused.tell("c.test", "5", "q"), Telling::TooMany);
        assert_eq!(refused.tell("d.test", "6", "q"), Telling::Nothing);
        assert_eq!(refused.tell("b.test", "7", "q"), Telling::Again("4".into()));
    }
}
