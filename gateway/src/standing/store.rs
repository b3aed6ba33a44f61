//! Every version of every standing policy, kept for ever in `policies.redb`.
use crate::control::types::{PolicyEdition, PolicyKey, PolicyVersion};
use crate::state_file::{StateError, StateFile, Table};
use sallyport_policy::PolicyText;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Versions by key and number.
const VERSIONS: Table = Table::new("versions");
/// By key: the digest of the files on disk that were looked at last and need no second look.
const SEEN: Table = Table::new("seen");

/// The file of versions.
pub(super) struct Store(StateFile);

impl Store {
    pub(super) fn open(folder: &Path) -> Result<Self, StateError> {
        let mend = "the versions before are gone then, and the files in the folder `policies` begin anew";
        Ok(Self(StateFile::open(
            folder,
            "policies.redb",
            &[VERSIONS, SEEN],
            mend,
        )?))
    }

    /// The newest version of each policy.
    pub(super) fn newest(&self) -> Result<BTreeMap<PolicyKey, PolicyEdition>, StateError> {
        let all: Vec<(String, PolicyEdition)> = self.0.range(VERSIONS, "", None)?;
        // In order of their numbers, so that the last one stays.
        Ok(all
            .into_iter()
            .filter_map(|(place, edition)| {
                let key = place.split_once(' ')?.0.to_owned();
                Some((PolicyKey::try_from(key).ok()?, edition))
            })
            .collect())
    }

    pub(super) fn seen(&self) -> Result<BTreeMap<String, String>, StateError> {
        Ok(self.0.range(SEEN, "", None)?.into_iter().collect())
    }

    /// All versions of a policy, newest first.
    pub(super) fn versions(&self, key: &PolicyKey) -> Result<Vec<PolicyVersion>, StateError> {
        // `!` comes after the space that ends a key.
        let all: Vec<(String, PolicyEdition)> =
            self.0
                .range(VERSIONS, &format!("{key} "), Some(&format!("{key}!")))?;
        Ok(all
            .into_iter()
            .rev()
            .map(|(_, edition)| edition.version)
            .collect())
    }

    pub(super) fn version(&self, key: &PolicyKey, number: u64) -> Result<Option<PolicyEdition>, StateError> {
        self.0.get(VERSIONS, &place(key, number))
    }

    /// Adds versions, and notes what of the disk was looked at for them. All or nothing, durable when it returns.
    pub(super) fn add(&self, new: &[(PolicyKey, PolicyEdition, String)]) -> Result<(), StateError> {
        let mut changes = self.0.change()?;
        for (key, edition, seen) in new {
            changes.put(VERSIONS, &place(key, edition.version.number), edition)?;
            changes.put(SEEN, &key.to_string(), seen)?;
        }
        changes.commit()
    }

    pub(super) fn saw(&self, key: &PolicyKey, seen: &str) -> Result<(), StateError> {
        let mut changes = self.0.change()?;
        changes.put(SEEN, &key.to_string(), &seen)?;
        changes.commit()
    }
}

/// Ordered by number within a key.
fn place(key: &PolicyKey, number: u64) -> String {
    format!("{key} {number:020}")
}

/// SHA-256 over texts, hex; length-prefixed, so that no two lists of texts have the same bytes.
pub(super) fn digest(texts: &[PolicyText]) -> String {
    let mut hasher = Sha256::new();
    for part in texts.iter().flat_map(|text| [&text.name, &text.text]) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing into a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
