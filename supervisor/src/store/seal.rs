//! Rows with a checksum of their own, over their place and their text: the file format does not notice flipped bits.
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// Length of the checksum before the text, in bytes.
const SUM: usize = 16;

/// Checksum, then the value as JSON. The error is a value that is no JSON.
pub fn seal<T: Serialize>(owner: &str, sequence: u64, value: &T) -> Result<Vec<u8>, String> {
    let text = serde_json::to_vec(value).map_err(|fault| fault.to_string())?;
    let mut sealed = sum(owner, sequence, &text).to_vec();
    sealed.extend_from_slice(&text);
    Ok(sealed)
}

/// The value. The error says what does not fit.
pub fn unseal<T: DeserializeOwned>(owner: &str, sequence: u64, sealed: &[u8]) -> Result<T, String> {
    let (known, text) = sealed.split_at_checked(SUM).ok_or("it is cut short")?;
    if known != sum(owner, sequence, text) {
        return Err("its checksum does not fit".into());
    }
    serde_json::from_slice(text).map_err(|fault| format!("it was written by another version: {fault}"))
}

fn sum(owner: &str, sequence: u64, text: &[u8]) -> [u8; SUM] {
    let mut hasher = Sha256::new();
    hasher.update(owner.as_bytes());
    hasher.update([0]);
    hasher.update(sequence.to_be_bytes());
    hasher.update(text);
    let mut short = [0; SUM];
    short.copy_from_slice(&hasher.finalize()[..SUM]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_moved_row_is_noticed() {
        let sealed = seal("run", 7, &"text").unwrap();
        assert_eq!(unseal::<String>("run", 7, &sealed).unwrap(), "text");
        assert!(unseal::<String>("run", 8, &sealed).is_err());
        assert!(unseal::<String>("other", 7, &sealed).is_err());
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal::<String>("run", 7, &flipped).is_err(), "bit {bit}");
        }
        assert!(unseal::<String>("run", 7, &sealed[..3]).is_err());
    }
}
