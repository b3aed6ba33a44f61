//! The machine's network: loopback alone, every address local, and all traffic redirected to two sockets.
//!
//! Runs inside the machine's network namespace, before anything of the machine does.
use super::netlink::{APPEND, Attributes, CREATE, Message, request};
use rustix::net::Protocol;
use rustix::net::netlink::NETFILTER;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

/// Port of the TCP listeners, on both loopback addresses.
pub(super) const REDIRECT_PORT: u16 = 15001;
/// Port of the DNS sockets.
pub(super) const DNS_PORT: u16 = 15053;
/// What the machine's resolver is told; any other address would do as well.
pub(super) const NAMESERVER: &str = "127.0.0.53";

/// Addresses on the loopback interface besides its own (RFC 5737, RFC 3849): without one, `getaddrinfo` with
/// `AI_ADDRCONFIG` finds that the machine has no address of that family and looks no name up.
const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// `NETLINK_ROUTE` has the number 0, which is said by naming none.
const ROUTE: Option<Protocol> = None;

const LOOPBACK_INDEX: u32 = 1;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTA_OIF: u16 = 4;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `NFNL_SUBSYS_NFTABLES << 8`.
const NFTABLES: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = NFTABLES;
const NEW_CHAIN: u16 = NFTABLES | 3;
const NEW_RULE: u16 = NFTABLES | 6;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The sockets that all of the machine's traffic ends at.
#[derive(Debug)]
pub(super) struct Sockets {
    /// TCP, IPv4 first.
    pub(super) redirect: Vec<OwnedFd>,
    /// UDP, IPv4 first.
    pub(super) dns: Vec<OwnedFd>,
}

/// Sets everything up; IPv6 only where the kernel has it.
///
/// # Errors
/// Says which step failed.
pub(super) fn set_up() -> io::Result<Sockets> {
    step("bring up the loopback interface", request(ROUTE, &[link_up()]))?;
    step(
        "give the machine an IPv4 address",
        request(ROUTE, &[own_address(AF_INET, &OWN_V4.octets())]),
    )?;
    step(
        "make every IPv4 address local",
        request(ROUTE, &[local_route(AF_INET)]),
    )?;
    step(
        "redirect IPv4 with nftables (kernel module `nf_tables`)",
        request(Some(NETFILTER), &rules(AF_INET)),
    )?;
    let mut sockets = Sockets {
        redirect: Vec::new(),
        dns: Vec::new(),
    };
    open(&mut sockets, Ipv4Addr::LOCALHOST.into())?;
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        step(
            "give the machine an IPv6 address",
            request(ROUTE, &[own_address(AF_INET6, &OWN_V6.octets())]),
        )?;
        step(
            "make every IPv6 address local",
            request(ROUTE, &[local_route(AF_INET6)]),
        )?;
        step(
            "redirect IPv6 with nftables",
            request(Some(NETFILTER), &rules(AF_INET6)),
        )?;
        open(&mut sockets, Ipv6Addr::LOCALHOST.into())?;
    }
    Ok(sockets)
}

fn open(sockets: &mut Sockets, address: std::net::IpAddr) -> io::Result<()> {
    let listener = step(
        "listen",
        TcpListener::bind(SocketAddr::new(address, REDIRECT_PORT)),
    )?;
    let dns = step(
        "open the DNS socket",
        UdpSocket::bind(SocketAddr::new(address, DNS_PORT)),
    )?;
    sockets.redirect.push(listener.into());
    sockets.dns.push(dns.into());
    Ok(())
}

fn step<T>(what: &str, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| io::Error::new(error.kind(), format!("cannot {what}: {error}")))
}

fn link_up() -> Message {
    let mut header = vec![0; 4];
    header.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    header.extend_from_slice(&1u32.to_ne_bytes());
    header.extend_from_slice(&1u32.to_ne_bytes());
    Message {
        kind: RTM_NEWLINK,
        flags: 0,
        header,
        attributes: Attributes::default(),
        acknowledged: true,
    }
}

/// `ip address add ADDRESS/32 dev lo`, or `/128`.
fn own_address(family: u8, address: &[u8]) -> Message {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const SCOPE_UNIVERSE: u8 = 0;
    let bits = if family == AF_INET { 32 } else { 128 };
    let mut header = vec![family, bits, 0, SCOPE_UNIVERSE];
    header.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    Message {
        kind: RTM_NEWADDR,
        flags: CREATE,
        header,
        attributes: Attributes::default()
            .bytes(IFA_LOCAL, address)
            .bytes(IFA_ADDRESS, address),
        acknowledged: true,
    }
}

/// `ip route add local default dev lo`.
fn local_route(family: u8) -> Message {
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_BOOT: u8 = 3;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    let mut header = vec![
        family,
        0,
        0,
        0,
        TABLE_LOCAL,
        PROTOCOL_BOOT,
        SCOPE_HOST,
        TYPE_LOCAL,
    ];
    header.extend_from_slice(&[0; 4]);
    let attributes = Attributes::default().bytes(RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes());
    Message {
        kind: RTM_NEWROUTE,
        flags: CREATE,
        header,
        attributes,
        acknowledged: true,
    }
}

/// One table with one chain at the output hook: DNS and TCP to our sockets, but not loopback among the machine's own.
fn rules(family: u8) -> Vec<Message> {
    const TABLE: &str = "sallyport";
    const CHAIN: &str = "output";
    const HOOK_OUTPUT: u32 = 3;
    const PRIORITY_DNAT: i32 = -100;
    let message = |kind, flags, attributes, acknowledged| {
        let family = if acknowledged { family } else { 0 };
        let resource: u16 = if acknowledged { 0 } else { NFTABLES >> 8 };
        let mut header = vec![family, 0];
        header.extend_from_slice(&resource.to_be_bytes());
        Message {
            kind,
            flags,
            header,
            attributes,
            acknowledged,
        }
    };
    let hook = Attributes::default()
        .number(1, HOOK_OUTPUT)
        .bytes(2, &PRIORITY_DNAT.to_be_bytes());
    let chain = Attributes::default()
        .text(1, TABLE)
        .text(3, CHAIN)
        .nested(4, &hook)
        .text(7, "nat");
    let rule = |expressions: &Attributes| {
        let attributes = Attributes::default()
            .text(1, TABLE)
            .text(2, CHAIN)
            .nested(4, expressions);
        message(NEW_RULE, CREATE | APPEND, attributes, true)
    };
    let to = |port| move |list| redirect(list, port);
    let name_query = |protocol| port_is(protocol_is(Attributes::default(), protocol), 53);
    vec![
        message(BATCH_BEGIN, 0, Attributes::default(), false),
        message(NEW_TABLE, CREATE, Attributes::default().text(1, TABLE), true),
        message(NEW_CHAIN, CREATE, chain, true),
        rule(&to(DNS_PORT)(name_query(UDP))),
        rule(&to(REDIRECT_PORT)(name_query(TCP))),
        rule(&to(REDIRECT_PORT)(not_loopback(
            protocol_is(Attributes::default(), TCP),
            family,
        ))),
        message(BATCH_END, 0, Attributes::default(), false),
    ]
}

/// `NFT_REG_1`: every expression here loads and compares at once.
const REGISTER: u32 = 1;

fn expression(list: Attributes, name: &str, data: &Attributes) -> Attributes {
    list.nested(1, &Attributes::default().text(1, name).nested(2, data))
}

fn protocol_is(list: Attributes, protocol: u8) -> Attributes {
    const META_L4PROTO: u32 = 16;
    let load = Attributes::default().number(1, REGISTER).number(2, META_L4PROTO);
    compare(expression(list, "meta", &load), Compare::Equal, &[protocol])
}

fn port_is(list: Attributes, port: u16) -> Attributes {
    const TRANSPORT_HEADER: u32 = 2;
    compare(
        payload(list, TRANSPORT_HEADER, 2, 2),
        Compare::Equal,
        &port.to_be_bytes(),
    )
}

fn not_loopback(list: Attributes, family: u8) -> Attributes {
    const NETWORK_HEADER: u32 = 1;
    if family == AF_INET6 {
        let loaded = payload(list, NETWORK_HEADER, 24, 16);
        return compare(loaded, Compare::NotEqual, &Ipv6Addr::LOCALHOST.octets());
    }
    // The first byte of the destination is the whole of 127.0.0.0/8.
    compare(payload(list, NETWORK_HEADER, 16, 1), Compare::NotEqual, &[127])
}

fn payload(list: Attributes, base: u32, offset: u32, length: u32) -> Attributes {
    let load = Attributes::default()
        .number(1, REGISTER)
        .number(2, base)
        .number(3, offset)
        .number(4, length);
    expression(list, "payload", &load)
}

#[derive(Clone, Copy)]
enum Compare {
    Equal = 0,
    NotEqual = 1,
}

fn compare(list: Attributes, how: Compare, with: &[u8]) -> Attributes {
    let value = Attributes::default().bytes(1, with);
    let data = Attributes::default()
        .number(1, REGISTER)
        .number(2, how as u32)
        .nested(3, &value);
    expression(list, "cmp", &data)
}

fn redirect(list: Attributes, port: u16) -> Attributes {
    let value = Attributes::default().bytes(1, &port.to_be_bytes());
    let load = Attributes::default().number(1, REGISTER).nested(2, &value);
    let list = expression(list, "immediate", &load);
    expression(list, "redir", &Attributes::default().number(1, REGISTER))
}
