//! Memory for values: pages of their own, kept out of swap and core files where the system lets us, and wiped when let go.
use memmap2::{Advice, MmapMut};
use secrecy::{ExposeSecret, SecretSlice};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use zeroize::Zeroize;

/// Values in pages of their own at a time: each takes at least one page, and the system counts mappings. More lie in ordinary
/// memory, and are wiped all the same.
const MOST: usize = 4096;

static HELD: AtomicUsize = AtomicUsize::new(0);
static FAULT: OnceLock<String> = OnceLock::new();

/// Bytes of a value.
pub(super) enum Locked {
    Pages { map: MmapMut, length: usize },
    Ordinary(SecretSlice<u8>),
}

impl Locked {
    /// Takes bytes over; the vector is wiped.
    pub(super) fn new(mut bytes: Vec<u8>) -> Self {
        if HELD.fetch_add(1, Ordering::Relaxed) < MOST {
            match pages(&bytes) {
                Ok(map) => {
                    let length = bytes.len();
                    bytes.zeroize();
                    return Self::Pages { map, length };
                }
                Err(error) => tell(&error),
            }
        }
        HELD.fetch_sub(1, Ordering::Relaxed);
        Self::Ordinary(SecretSlice::from(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pages { map, length } => &map[..*length],
            Self::Ordinary(bytes) => bytes.expose_secret(),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Self::Pages { map, .. } = self {
            map.as_mut().zeroize();
            HELD.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Why values are not locked into memory, where they are not: they may come into swap. The operator's to mend.
pub fn fault() -> Option<&'static str> {
    FAULT.get().map(String::as_str)
}

fn pages(bytes: &[u8]) -> io::Result<MmapMut> {
    let mut map = MmapMut::map_anon(bytes.len().max(1))?;
    // Before anything is written there. What cannot be had is told, and the value held all the same.
    for done in [map.advise(Advice::DontDump), map.lock()] {
        if let Err(error) = done {
            tell(&error);
        }
    }
    map[..bytes.len()].copy_from_slice(bytes);
    Ok(map)
}

fn tell(error: &io::Error) {
    let text = format!(
        "values are not locked into memory ({error}): raise the limit of locked memory (`ulimit -l`, `LimitMEMLOCK=`) so that none comes \
         into swap"
    );
    if FAULT.set(text.clone()).is_ok() {
        tracing::warn!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of `/proc/self/smaps` about the mapping in which these bytes lie.
    fn mapping(bytes: &[u8]) -> String {
        let at = bytes.as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut found = String::new();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let range = range.and_then(|(low, high)| {
                Some((
                    usize::from_str_radix(low, 16).ok()?,
                    usize::from_str_radix(high, 16).ok()?,
                ))
            });
            if let Some((low, high)) = range {
                inside = (low..high).contains(&at);
            }
            if inside {
                found.push_str(line);
                found.push('\n');
            }
        }
        found
    }

    #[test]
    fn a_value_lies_in_pages_that_are_locked_and_left_out_of_core_files() {
        let value = Locked::new(b"open sesame".to_vec());
        assert_eq!(value.bytes(), b"open sesame");
        let mapping = mapping(value.bytes());
        let flags = mapping.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" dd"), "not dumped: {mapping}");
        match fault() {
            None => assert!(flags.contains(" lo"), "locked: {mapping}"),
            Some(why) => assert!(why.contains("ulimit -l"), "{why}"),
        }
        assert_eq!(Locked::new(Vec::new()).bytes(), b"");
        // More than there may be in pages are held all the same.
        let values: Vec<Locked> = (0..MOST + 10)
            .map(|number| Locked::new(format!("value {number}").into_bytes()))
            .collect();
        for (number, value) in values.iter().enumerate() {
            assert_eq!(value.bytes(), format!("value {number}").as_bytes());
        }
        assert!(values.iter().any(|value| matches!(value, Locked::Ordinary(_))));
    }
}
