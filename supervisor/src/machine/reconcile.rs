//! After a restart: a machine that no run knows is found and removed.
use super::{Driver, MachineError, MachineRecord};
use std::collections::BTreeSet;

/// The machines among `present` that no run in `known` (machine ids) has. By id, never by age. Pure.
pub fn leftovers(known: &BTreeSet<String>, present: &[MachineRecord]) -> Vec<MachineRecord> {
    present
        .iter()
        .filter(|record| !known.contains(&record.id))
        .cloned()
        .collect()
}

/// What reconciling did.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Ids of the machines that were removed.
    pub removed: Vec<String>,
    /// Machines that could not be removed, and why; the next try may do it.
    pub failed: Vec<(String, MachineError)>,
}

/// Removes what no run knows; one that cannot be removed does not keep the others.
///
/// # Errors
/// The driver cannot say what machines there are.
pub async fn reconcile(driver: &dyn Driver, known: &BTreeSet<String>) -> Result<Reconciled, MachineError> {
    let mut done = Reconciled::default();
    for record in leftovers(known, &driver.list().await?) {
        match driver.destroy(&record).await {
            Ok(()) => done.removed.push(record.id),
            Err(error) => done.failed.push((record.id, error)),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::leftovers;
    use crate::machine::MachineRecord;
    use std::collections::BTreeSet;

    #[test]
    fn a_machine_without_a_run_is_left_over_and_one_with_a_run_is_not() {
        let record = |id: &str| MachineRecord {
            id: id.to_owned(),
            driver: "namespace".to_owned(),
            facts: serde_json::Value::Null,
        };
        let known = BTreeSet::from(["a".to_owned(), "never-made".to_owned()]);
        assert_eq!(leftovers(&known, &[record("a"), record("b")]), [record("b")]);
        assert_eq!(leftovers(&known, &[]), []);
    }
}
