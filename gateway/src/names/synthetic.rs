//! Synthetic addresses: each stands for one name of one session, for as long as the session lives.
use super::kept::NameFile;
use super::refused::Refused;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// 198.18.0.0/15, reserved for benchmarks (RFC 2544): never routed on the internet.
const V4_BASE: u32 = 0xc612_0000;
const V4_MASK: u32 = 0xfffe_0000;
/// A unique local prefix (RFC 4193) with a fixed random part.
const V6_PREFIX: [u16; 4] = [0xfd5a, 0x11e9, 0x0a7e, 0x0000];
/// Addresses in the IPv4 range; the first and the last are not used.
const SLOTS: u32 = 1 << 17;

/// The names of one session and their addresses.
#[derive(Debug)]
pub struct Table {
    salt: String,
    limit: usize,
    entries: Mutex<Entries>,
    overflowed: AtomicBool,
    refused: Refused,
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<String, u32>,
    by_slot: HashMap<u32, String>,
    /// Where they outlive the process.
    file: Option<NameFile>,
}

impl Entries {
    fn put(&mut self, slot: u32, name: &str) {
        self.by_name.insert(name.to_owned(), slot);
        self.by_slot.insert(slot, name.to_owned());
    }
}

/// The table holds as many names as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this session has looked up {0} different names, which is the limit; names known already still work")]
pub struct Full(pub usize);

impl Table {
    /// An empty table; `salt` is the session's id.
    pub fn new(salt: &str, limit: usize) -> Self {
        Self {
            salt: salt.to_owned(),
            limit: limit.min(SLOTS as usize / 2),
            entries: Mutex::default(),
            overflowed: AtomicBool::new(false),
            refused: Refused::new(0),
        }
    }

    /// The same, with room for so many refused names that have a record each.
    pub fn telling_refused(self, limit: usize) -> Self {
        Self {
            refused: Refused::new(limit),
            ..self
        }
    }

    /// With the names that a file has, and further ones kept there.
    pub fn kept_in(self, path: &Path) -> io::Result<Self> {
        let (file, names) = NameFile::open(path)?;
        let mut entries = self.entries.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (slot, name) in names.into_iter().take(self.limit) {
            let free = !entries.by_slot.contains_key(&slot) && !entries.by_name.contains_key(&name);
            if free && is_usable(slot) {
                entries.put(slot, &name);
            }
        }
        entries.file = Some(file);
        Ok(Self {
            entries: Mutex::new(entries),
            ..self
        })
    }

    /// The names whose refusal the machine was told.
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// The two addresses that stand for a canonical name.
    pub fn addresses(&self, name: &str) -> Result<(Ipv4Addr, Ipv6Addr), Full> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match entries.by_name.get(name) {
            Some(slot) => *slot,
            None if entries.by_name.len() >= self.limit => return Err(Full(self.limit)),
            None => {
                let slot = self.free_slot(&entries, name);
                entries.put(slot, name);
                if let Some(Err(error)) = entries.file.as_mut().map(|file| file.add(slot, name)) {
                    tracing::warn!(%error, "a restart will forget a synthetic address");
                }
                slot
            }
        };
        Ok((v4(slot), v6(slot)))
    }

    /// True once, when more names were asked for than there may be: that is recorded once.
    pub fn first_overflow(&self) -> bool {
        !self.overflowed.swap(true, Ordering::Relaxed)
    }

    /// The name that an address stands for.
    pub fn name(&self, address: IpAddr) -> Option<String> {
        let slot = slot(address)?;
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_slot
            .get(&slot)
            .cloned()
    }

    /// The next free slot from the name's own on; there is one, since at most half of them are taken.
    fn free_slot(&self, entries: &Entries, name: &str) -> u32 {
        let digest = Sha256::new()
            .chain_update(&self.salt)
            .chain_update([0])
            .chain_update(name)
            .finalize();
        let start = digest
            .iter()
            .take(4)
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        (0..SLOTS)
            .map(|step| start.wrapping_add(step) % SLOTS)
            .find(|slot| is_usable(*slot) && !entries.by_slot.contains_key(slot))
            .unwrap_or(1)
    }
}

/// Whether an address of the ranges is used: not the first and not the last.
fn is_usable(slot: u32) -> bool {
    (1..SLOTS - 1).contains(&slot)
}

/// Whether an address is one that the gateway makes up; such an address is never dialled.
pub fn is_synthetic(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => u32::from(address) & V4_MASK == V4_BASE,
        IpAddr::V6(address) => address.segments()[..4] == V6_PREFIX,
    }
}

fn v4(slot: u32) -> Ipv4Addr {
    Ipv4Addr::from(V4_BASE | slot)
}

fn v6(slot: u32) -> Ipv6Addr {
    let [a, b, c, d] = V6_PREFIX;
    let [_, x, y, z] = slot.to_be_bytes();
    Ipv6Addr::new(a, b, c, d, 0, 0, u16::from(x), u16::from_be_bytes([y, z]))
}

fn slot(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) if is_synthetic(address.into()) => Some(u32::from(address) & !V4_MASK),
        IpAddr::V6(address) if is_synthetic(address.into()) => {
            let [.., x, y] = address.segments();
            let slot = u32::from(x) << 16 | u32::from(y);
            (v6(slot) == address).then_some(slot)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_and_both_lead_back() {
        let table = Table::new("run-1", 100);
        let (four, six) = table.addresses("allowed.test").unwrap();
        assert_eq!(table.addresses("allowed.test").unwrap(), (four, six));
        assert_eq!(table.name(four.into()).as_deref(), Some("allowed.test"));
        assert_eq!(table.name(six.into()).as_deref(), Some("allowed.test"));
        assert!(is_synthetic(four.into()) && is_synthetic(six.into()));
    }

    #[test]
    fn a_new_table_of_the_same_session_gives_the_same_addresses() {
        let of = |salt| Table::new(salt, 100).addresses("allowed.test").unwrap();
        assert_eq!(of("run-1"), of("run-1"));
        assert_ne!(of("run-1"), of("run-2"));
    }

    #[test]
    fn a_restarted_table_leads_back_from_every_address_and_gives_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-1.names");
        let kept = |limit| Table::new("run-1", limit).kept_in(&path).unwrap();
        let names: Vec<String> = (0..500).map(|number| format!("{number}.test")).collect();
        let before: Vec<_> = {
            let table = kept(1000);
            names.iter().map(|name| table.addresses(name).unwrap()).collect()
        };
        let after = kept(1000);
        for (name, (four, six)) in names.iter().zip(before).rev() {
            assert_eq!(after.name(four.into()).as_ref(), Some(name));
            assert_eq!(after.addresses(name), Ok((four, six)));
        }
        assert_eq!(kept(500).addresses("one-more.test"), Err(Full(500)));
    }

    #[test]
    fn a_full_table_refuses_new_names_and_keeps_the_old_ones() {
        let table = Table::new("run-1", 2);
        let first = table.addresses("a.test").unwrap();
        table.addresses("b.test").unwrap();
        assert_eq!(table.addresses("c.test"), Err(Full(2)));
        assert_eq!(table.addresses("a.test"), Ok(first));
    }

    #[test]
    fn many_names_have_as_many_addresses() {
        let table = Table::new("run-1", 20_000);
        let all: std::collections::HashSet<_> = (0..20_000)
            .map(|number| table.addresses(&format!("{number}.test")).unwrap())
            .collect();
        assert_eq!(all.len(), 20_000);
    }

    #[test]
    fn other_addresses_stand_for_nothing() {
        let table = Table::new("run-1", 2);
        for text in [
            "198.17.255.255",
            "198.20.0.0",
            "198.18.0.9",
            "fd5a:11e9:a7e::1:0:0:1",
            "::1",
        ] {
            assert_eq!(table.name(text.parse().unwrap()), None, "{text}");
        }
    }
}
