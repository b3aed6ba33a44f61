//! The store's file: a head, a nonce, and the entries, sealed; read and written as a whole.
use super::error::StoreError;
use super::key::{Key, Recipe};
use crate::secret::Value;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Of a store whose key is a file.
const FORMAT: &[u8] = b"sallyport-secrets-1\n";
/// Of a store whose head says how the key is made.
const FORMAT_WITH_RECIPE: &[u8] = b"sallyport-secrets-2\n";
const NONCE: usize = 12;

/// Values by name.
pub(super) type Entries = BTreeMap<String, Value>;

/// A file of the store, taken apart.
pub(super) struct Parts<'f> {
    head: &'f [u8],
    pub(super) recipe: Option<Recipe>,
    nonce: [u8; NONCE],
    body: &'f [u8],
}

/// None where it is no file of a store.
pub(super) fn parts(sealed: &[u8]) -> Option<Parts<'_>> {
    let (head, recipe) = match sealed.strip_prefix(FORMAT_WITH_RECIPE) {
        None => (sealed.get(..FORMAT.len()).filter(|head| *head == FORMAT)?, None),
        Some(rest) => {
            let end = memchr::memchr(b'\n', rest)? + 1;
            let head = sealed.get(..FORMAT_WITH_RECIPE.len() + end)?;
            (head, Some(Recipe::read(&rest[..end])?))
        }
    };
    let (nonce, body) = sealed[head.len()..].split_first_chunk::<NONCE>()?;
    Some(Parts {
        head,
        recipe,
        nonce: *nonce,
        body,
    })
}

impl Parts<'_> {
    pub(super) fn open(&self, key: &Key) -> Option<Entries> {
        let mut body = Zeroizing::new(self.body.to_vec());
        let plain = key
            .cipher()
            .ok()?
            .open_in_place(
                Nonce::assume_unique_for_key(self.nonce),
                Aad::from(self.head),
                &mut body,
            )
            .ok()?;
        decode(plain)
    }
}

/// A whole file.
pub(super) fn seal(entries: &Entries, recipe: Option<&Recipe>, key: &Key) -> Result<Vec<u8>, StoreError> {
    let head = match recipe {
        None => FORMAT.to_vec(),
        Some(recipe) => [FORMAT_WITH_RECIPE, recipe.line()?.as_bytes()].concat(),
    };
    let mut body = encode(entries);
    let nonce = key
        .cipher()?
        .seal_in_place_append_tag(Aad::from(&head), &mut *body)
        .map_err(|_| StoreError::Crypto)?;
    Ok([head.as_slice(), nonce.as_ref(), body.as_slice()].concat())
}

/// Name and value, each behind its length (32 bits, big-endian).
fn encode(entries: &Entries) -> Zeroizing<Vec<u8>> {
    let size: usize = entries
        .iter()
        .map(|(name, value)| 8 + name.len() + value.bytes().len())
        .sum();
    // Room for the tag too, so that nothing is moved and left behind.
    let mut plain = Zeroizing::new(Vec::with_capacity(size + AES_256_GCM.tag_len()));
    for (name, value) in entries {
        for part in [name.as_bytes(), value.bytes()] {
            plain.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            plain.extend_from_slice(part);
        }
    }
    plain
}

fn decode(mut plain: &[u8]) -> Option<Entries> {
    let mut entries = Entries::new();
    while !plain.is_empty() {
        let mut part = || -> Option<&[u8]> {
            let (length, rest) = plain.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            plain = rest;
            Some(part)
        };
        let name = std::str::from_utf8(part()?).ok()?.to_owned();
        let value = Value::new(part()?.to_vec());
        entries.insert(name, value);
    }
    Some(entries)
}
