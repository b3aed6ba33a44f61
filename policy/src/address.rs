//! Classes of IP addresses that are no ordinary place on the internet, and seeing through disguises.
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range that is refused unless a rule names it with `private: true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// 127.0.0.0/8, ::1.
    Loopback,
    /// RFC 1918, fc00::/7 (RFC 4193), fec0::/10.
    Private,
    /// 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// 0.0.0.0/8, `::`.
    Unspecified,
    /// 240.0.0.0/4 with the broadcast address, and what IANA keeps for itself.
    Reserved,
    /// 100.64.0.0/10 (RFC 6598).
    CarrierNat,
    /// Where clouds hand out credentials of the machine.
    Metadata,
    /// 198.18.0.0/15 (RFC 2544).
    Benchmark,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Multicast => "multicast",
            Self::Unspecified => "unspecified (this-network)",
            Self::Reserved => "reserved",
            Self::CarrierNat => "carrier-grade NAT",
            Self::Metadata => "cloud metadata",
            Self::Benchmark => "benchmark",
        })
    }
}

/// The class of an address, or `None` for an ordinary public one. Documentation ranges (RFC 5737, RFC 3849)
/// count as public. IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4) is judged as the IPv4 address.
pub fn classify(address: IpAddr) -> Option<AddressClass> {
    match address.to_canonical() {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

/// IANA's special-purpose registry for IPv4 (RFC 6890 and its successors), and the clouds' own addresses.
fn classify_v4(address: Ipv4Addr) -> Option<AddressClass> {
    let [a, b, c, _] = address.octets();
    let metadata = [
        Ipv4Addr::new(169, 254, 169, 254),
        Ipv4Addr::new(169, 254, 170, 2),
        Ipv4Addr::new(100, 100, 100, 200),
        Ipv4Addr::new(168, 63, 129, 16),
        Ipv4Addr::new(192, 0, 0, 192),
    ];
    if metadata.contains(&address) {
        return Some(AddressClass::Metadata);
    }
    Some(match (a, b, c) {
        (0, ..) => AddressClass::Unspecified,
        (127, ..) => AddressClass::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => AddressClass::Private,
        (169, 254, _) => AddressClass::LinkLocal,
        (100, 64..=127, _) => AddressClass::CarrierNat,
        (192, 0, 0) => AddressClass::Reserved,
        (198, 18..=19, _) => AddressClass::Benchmark,
        (224..=239, ..) => AddressClass::Multicast,
        (240..=255, ..) => AddressClass::Reserved,
        _ => return None,
    })
}

/// Outside 2000::/3 only NAT64 leads anywhere public; the rest is refused by its name.
fn classify_v6(address: Ipv6Addr) -> Option<AddressClass> {
    let segments = address.segments();
    let low = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    if address.is_unspecified() {
        return Some(AddressClass::Unspecified);
    }
    if address.is_loopback() {
        return Some(AddressClass::Loopback);
    }
    if segments[..6] == [0; 6] {
        // IPv4-compatible addresses are obsolete (RFC 4291 section 2.5.5.1): none of them is public.
        return classify_v4(low).or(Some(AddressClass::Reserved));
    }
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return classify_v4(low);
    }
    if address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254) {
        return Some(AddressClass::Metadata);
    }
    match segments[0] {
        // 6to4 (RFC 3056) carries its IPv4 address in bits 16 to 47.
        0x2002 => classify_v4(Ipv4Addr::from(
            (u32::from(segments[1]) << 16) | u32::from(segments[2]),
        )),
        // Teredo (RFC 4380) and the rest of IETF protocol assignments (RFC 2928).
        0x2001 if segments[1] < 0x200 => Some(AddressClass::Reserved),
        0x2000..=0x3fff => None,
        0xfc00..=0xfdff | 0xfec0..=0xfeff => Some(AddressClass::Private),
        0xfe80..=0xfebf => Some(AddressClass::LinkLocal),
        0xff00..=0xffff => Some(AddressClass::Multicast),
        _ => Some(AddressClass::Reserved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Option<AddressClass> {
        classify(text.parse().unwrap())
    }

    #[test]
    fn special_ranges_are_named() {
        for (text, expected) in [
            ("127.0.0.1", AddressClass::Loopback),
            ("0.0.0.0", AddressClass::Unspecified),
            ("0.1.2.3", AddressClass::Unspecified),
            ("10.255.0.1", AddressClass::Private),
            ("172.16.0.1", AddressClass::Private),
            ("172.31.255.255", AddressClass::Private),
            ("192.168.1.1", AddressClass::Private),
            ("169.254.1.1", AddressClass::LinkLocal),
            ("169.254.169.254", AddressClass::Metadata),
            ("100.64.0.1", AddressClass::CarrierNat),
            ("100.127.255.255", AddressClass::CarrierNat),
            ("100.100.100.200", AddressClass::Metadata),
            ("198.18.0.5", AddressClass::Benchmark),
            ("224.0.0.1", AddressClass::Multicast),
            ("240.0.0.1", AddressClass::Reserved),
            ("255.255.255.255", AddressClass::Reserved),
            ("::", AddressClass::Unspecified),
            ("::1", AddressClass::Loopback),
            ("fd00:ec2::254", AddressClass::Metadata),
            ("fd12::1", AddressClass::Private),
            ("fe80::1", AddressClass::LinkLocal),
            ("ff02::1", AddressClass::Multicast),
        ] {
            assert_eq!(class(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_in_disguise_is_judged_as_itself() {
        for (text, expected) in [
            ("::ffff:127.0.0.1", AddressClass::Loopback),
            ("::ffff:a9fe:a9fe", AddressClass::Metadata),
            ("::127.0.0.1", AddressClass::Loopback),
            ("64:ff9b::a9fe:a9fe", AddressClass::Metadata),
            ("64:ff9b::10.0.0.1", AddressClass::Private),
            ("2002:7f00:1::", AddressClass::Loopback),
            ("2002:a9fe:a9fe::1", AddressClass::Metadata),
        ] {
            assert_eq!(class(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn public_and_documentation_addresses_have_no_class() {
        for text in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.9",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:db8::1",
            "2606:4700::1",
        ] {
            assert_eq!(class(text), None, "{text}");
        }
    }
}
