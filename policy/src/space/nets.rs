//! The address space cut into regions: within one, every range says the same, and all addresses are special or none is.
use crate::classify;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A part of the address space: what lies in a range and in none of the smaller ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// The smallest range around it, by number; `None` where there is none.
    pub(super) net: Option<usize>,
    /// Whether its addresses are private, loopback or special otherwise.
    pub(super) special: bool,
    /// One of its addresses.
    pub(super) witness: IpAddr,
}

/// Where [`classify`] may change its mind, as first addresses of IPv4 ranges (address, prefix length).
const SPECIAL_V4: &[([u8; 4], u8)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([100, 100, 100, 200], 32),
    ([127, 0, 0, 0], 8),
    ([168, 63, 129, 16], 32),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([224, 0, 0, 0], 3),
];

/// Likewise for IPv6 (address, prefix length), without the ranges that carry IPv4 addresses.
const SPECIAL_V6: &[([u16; 8], u8)] = &[
    ([0; 8], 96),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
];

/// Every region that is not empty, in the order of their first addresses; IPv4 first. The ranges are distinct.
pub(super) fn regions(nets: &[IpNet]) -> Vec<Region> {
    let mut regions = sweep(nets, true);
    regions.extend(sweep(nets, false));
    regions
}

/// A special address in each of these ranges that has some, and in none of its smaller ones; with the range.
pub(crate) fn special_addresses(nets: &[IpNet]) -> Vec<(String, IpAddr)> {
    regions(nets)
        .into_iter()
        .filter(|region| region.special)
        .filter_map(|region| Some((nets.get(region.net?)?.to_string(), region.witness)))
        .collect()
}

/// For each range the smallest other one around it.
pub(super) fn parents(nets: &[IpNet]) -> Vec<Option<usize>> {
    let mut parents = vec![None; nets.len()];
    for v4 in [true, false] {
        let mut open: Vec<usize> = Vec::new();
        for (number, span) in spans(nets, v4) {
            while open
                .last()
                .is_some_and(|last| nets.get(*last).is_some_and(|net| Span::of(net).last < span.first))
            {
                open.pop();
            }
            if let Some(parent) = parents.get_mut(number) {
                *parent = open.last().copied();
            }
            open.push(number);
        }
    }
    parents
}

/// First and last address.
#[derive(Clone, Copy)]
struct Span {
    first: u128,
    last: u128,
}

impl Span {
    fn of(net: &IpNet) -> Self {
        let number = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => u128::from(v6),
        };
        Self {
            first: number(net.network()),
            last: number(net.broadcast()),
        }
    }

    fn new(first: u128, prefix: u8, bits: u8) -> Self {
        let size = u128::MAX.checked_shr(u32::from(128 - bits + prefix)).unwrap_or(0);
        Self {
            first,
            last: first | size,
        }
    }
}

/// The ranges of one family, outer ones first.
fn spans(nets: &[IpNet], v4: bool) -> Vec<(usize, Span)> {
    let mut spans: Vec<(usize, Span)> = nets
        .iter()
        .enumerate()
        .filter(|(_, net)| net.addr().is_ipv4() == v4)
        .map(|(number, net)| (number, Span::of(net)))
        .collect();
    spans.sort_by_key(|(_, span)| (span.first, std::cmp::Reverse(span.last)));
    spans
}

fn sweep(nets: &[IpNet], v4: bool) -> Vec<Region> {
    let spans = spans(nets, v4);
    let end = if v4 { u128::from(u32::MAX) } else { u128::MAX };
    let mut cuts: Vec<u128> = vec![0];
    for span in spans.iter().map(|(_, span)| *span).chain(special(v4)) {
        cuts.push(span.first);
        cuts.extend(span.last.checked_add(1));
    }
    cuts.retain(|cut| *cut <= end);
    cuts.sort_unstable();
    cuts.dedup();
    let mut waiting = spans.into_iter().peekable();
    let mut open: Vec<(usize, Span)> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut regions = Vec::new();
    for (place, cut) in cuts.iter().enumerate() {
        while open.last().is_some_and(|(_, span)| span.last < *cut) {
            open.pop();
        }
        while let Some(next) = waiting.next_if(|(_, span)| span.first <= *cut) {
            open.push(next);
        }
        let next = cuts.get(place + 1).map_or(end, |next| next - 1);
        let Some(witness) = address(*cut, next, v4) else {
            continue;
        };
        let net = open.last().map(|(number, _)| *number);
        let special = classify(witness).is_some();
        if seen.insert((net, special)) {
            regions.push(Region {
                net,
                special,
                witness,
            });
        }
    }
    regions
}

/// An address between these, the second one where there is choice; none where they are IPv4 in disguise, which no host is.
fn address(first: u128, last: u128, v4: bool) -> Option<IpAddr> {
    let chosen = if first < last { first + 1 } else { first };
    if v4 {
        return u32::try_from(chosen)
            .ok()
            .map(|bits| IpAddr::V4(Ipv4Addr::from(bits)));
    }
    let address = Ipv6Addr::from(chosen);
    address.to_ipv4_mapped().is_none().then_some(IpAddr::V6(address))
}

fn special(v4: bool) -> Vec<Span> {
    let four = SPECIAL_V4
        .iter()
        .map(|(address, prefix)| (u128::from(u32::from_be_bytes(*address)), *prefix));
    if v4 {
        return four.map(|(first, prefix)| Span::new(first, prefix, 32)).collect();
    }
    let mut spans: Vec<Span> = SPECIAL_V6
        .iter()
        .map(|(address, prefix)| Span::new(u128::from(Ipv6Addr::from(*address)), *prefix, 128))
        .collect();
    // NAT64 (RFC 6052) has the IPv4 address at its end, 6to4 (RFC 3056) behind its first 16 bits.
    for (first, prefix) in four {
        let nat64 = u128::from(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0));
        spans.push(Span::new(nat64 | first, 96 + prefix, 128));
        let sixtofour = u128::from(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0));
        spans.push(Span::new(sixtofour | (first << 80), 16 + prefix, 128));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nets() -> Vec<IpNet> {
        [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "0.0.0.0/0",
            "9.9.9.9/32",
            "::/0",
            "2001:db8::/32",
            "fd00::/8",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect()
    }

    fn like(address: IpAddr, nets: &[IpNet]) -> (Vec<usize>, bool) {
        let around = (0..nets.len())
            .filter(|number| nets[*number].contains(&address))
            .collect();
        (around, classify(address).is_some())
    }

    #[test]
    fn regions_are_witnessed_by_addresses_of_their_own() {
        let nets = nets();
        for region in regions(&nets) {
            let (around, special) = like(region.witness, &nets);
            let smallest = around.into_iter().max_by_key(|number| nets[*number].prefix_len());
            assert_eq!((smallest, special), (region.net, region.special), "{region:?}");
        }
        assert_eq!(
            parents(&nets),
            [Some(2), Some(0), None, Some(2), None, Some(4), Some(4)]
        );
    }

    fn any_address() -> impl Strategy<Value = IpAddr> {
        let v6 = prop_oneof![
            any::<u128>(),
            any::<u128>().prop_map(|bits| bits >> 32),
            any::<u32>().prop_map(|low| (0x0064_ff9b_u128 << 96) | u128::from(low)),
            any::<u128>().prop_map(|bits| (0x2002_u128 << 112) | (bits >> 16)),
            any::<u128>().prop_map(|bits| (0x2001_u128 << 112) | (bits >> 16)),
            any::<u128>().prop_map(|bits| (0xfd_u128 << 120) | (bits >> 8)),
        ];
        prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
            (any::<u32>(), any::<bool>()).prop_map(|(bits, ten)| IpAddr::V4(Ipv4Addr::from(if ten {
                (10 << 24) | (bits >> 8)
            } else {
                bits >> 4
            }))),
            v6.prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits)).to_canonical()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn every_address_has_its_like_among_the_witnesses(address in any_address()) {
            let nets = nets();
            let own = like(address, &nets);
            prop_assert!(regions(&nets).iter().any(|region| like(region.witness, &nets) == own), "{address} {own:?}");
        }
    }
}
