//! Headers of load balancers, whole, cut and forged.
use super::*;
use proptest::prelude::*;

/// A header with this command, family and body.
fn header(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, body].concat()
}

/// 192.0.2.7:40000 to 203.0.113.9:3128.
const IPV4: &[u8] = &[192, 0, 2, 7, 203, 0, 113, 9, 0x9c, 0x40, 0x0c, 0x38];

fn proxied() -> Header {
    Header::Proxied(ProxyHeader {
        source: "192.0.2.7:40000".parse().unwrap(),
        destination: "203.0.113.9:3128".parse().unwrap(),
    })
}

#[test]
fn a_client_is_who_the_balancer_says() {
    let bytes = [header(0x21, 0x11, IPV4), b"CONNECT".to_vec()].concat();
    assert_eq!(read(&bytes), Ok(Some((proxied(), 28))));
    let mut body = "2001:db8::7".parse::<Ipv6Addr>().unwrap().octets().to_vec();
    body.extend("::ffff:203.0.113.9".parse::<Ipv6Addr>().unwrap().octets());
    body.extend([0x9c, 0x40, 0x0c, 0x38]);
    let (read, _) = read(&header(0x21, 0x21, &body)).unwrap().unwrap();
    let right = Header::Proxied(ProxyHeader {
        source: "[2001:db8::7]:40000".parse().unwrap(),
        destination: "203.0.113.9:3128".parse().unwrap(),
    });
    assert_eq!(read, right);
}

#[test]
fn a_health_check_and_a_unix_socket_leave_the_connections_own_addresses() {
    for bytes in [
        header(0x20, 0x00, &[]),
        header(0x20, 0x11, IPV4),
        header(0x21, 0x00, &[]),
        header(0x21, 0x31, &[b'/'; 216]),
    ] {
        assert_eq!(read(&bytes), Ok(Some((Header::Own, bytes.len()))));
    }
}

#[test]
fn further_fields_are_skipped() {
    let body = [IPV4, &[1, 0, 2, b'h', b'2', 4, 0, 0]].concat();
    let bytes = header(0x21, 0x11, &body);
    assert_eq!(read(&bytes), Ok(Some((proxied(), bytes.len()))));
    let cut = [IPV4, &[1, 0, 9, b'h']].concat();
    assert_eq!(read(&header(0x21, 0x11, &cut)), Err(HeaderFault::Cut));
    let torn = [IPV4, &[1, 0]].concat();
    assert_eq!(read(&header(0x21, 0x11, &torn)), Err(HeaderFault::Cut));
}

/// The check value of CRC-32C over `123456789` is that of the catalogue; the header's is computed by hand below.
#[test]
fn a_checksum_must_hold() {
    assert_eq!(
        crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(b"123456789"),
        0xe306_9283
    );
    let body = [IPV4, &[3, 0, 4, 0, 0, 0, 0]].concat();
    let mut bytes = header(0x21, 0x11, &body);
    assert_eq!(read(&bytes), Err(HeaderFault::Checksum));
    let sum = bitwise_crc32c(&bytes).to_be_bytes();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&sum);
    assert_eq!(read(&bytes), Ok(Some((proxied(), bytes.len()))));
    bytes[16] ^= 1;
    assert_eq!(read(&bytes), Err(HeaderFault::Checksum));
}

/// CRC-32C bit by bit (RFC 3720 appendix B.4), to hold the library against.
fn bitwise_crc32c(bytes: &[u8]) -> u32 {
    let mut sum = !0u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0x82f6_3b78
            } else {
                sum >> 1
            };
        }
    }
    !sum
}

#[test]
fn what_is_no_header_is_named() {
    for (bytes, fault) in [
        (b"CONNECT a".to_vec(), HeaderFault::Missing),
        (b"\r\n\r\nGET".to_vec(), HeaderFault::Missing),
        (b"PROXY TCP4 ".to_vec(), HeaderFault::Version1),
        (b"PROPFIND".to_vec(), HeaderFault::Missing),
        (header(0x11, 0x11, IPV4), HeaderFault::Version),
        (header(0x22, 0x11, IPV4), HeaderFault::Version),
        (header(0x21, 0x12, IPV4), HeaderFault::Family),
        (header(0x21, 0x11, &IPV4[..11]), HeaderFault::Cut),
        (header(0x21, 0x00, &[0; 5000]), HeaderFault::Long),
    ] {
        assert_eq!(read(&bytes), Err(fault), "{bytes:?}");
    }
    assert_eq!(read(b""), Ok(None));
    assert_eq!(read(b"PRO"), Ok(None));
}

proptest! {
    #[test]
    fn a_header_is_not_whole_before_its_last_byte_and_what_follows_changes_nothing(
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let whole = header(0x21, 0x11, IPV4);
        for end in 0..whole.len() {
            prop_assert_eq!(read(&whole[..end]), Ok(None));
        }
        prop_assert_eq!(read(&[whole.clone(), tail].concat()), Ok(Some((proxied(), whole.len()))));
    }
}
