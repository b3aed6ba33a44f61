//! The first bytes of real and broken clients.
use super::*;
use proptest::prelude::*;

fn hello(name: &'static str, alpn: &[&[u8]]) -> Vec<u8> {
    crate::crypto::install();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|offer| offer.to_vec()).collect();
    let name = rustls::pki_types::ServerName::try_from(name).unwrap();
    let mut client = rustls::ClientConnection::new(config.into(), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_client_hello_tells_its_name_and_offers() {
    let Protocol::Tls(facts) = sniff(&hello("allowed.test", &[b"h2", b"http/1.1"])) else {
        panic!()
    };
    assert_eq!(facts.server_name.as_deref(), Some("allowed.test"));
    assert_eq!(facts.alpn, vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
}

/// The same hello with one more extension.
fn with_extension(hello: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut body = hello[9..].to_vec();
    let mut at = 34;
    at += 1 + usize::from(body[at]);
    at += 2 + usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    at += 1 + usize::from(body[at]);
    let length = u16::from_be_bytes([body[at], body[at + 1]]) + 4 + data.len() as u16;
    body[at..at + 2].copy_from_slice(&length.to_be_bytes());
    body.extend(kind.to_be_bytes());
    body.extend((data.len() as u16).to_be_bytes());
    body.extend(data);
    let mut message = vec![1, 0];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(body);
    let mut record = vec![0x16, 3, 1];
    record.extend((message.len() as u16).to_be_bytes());
    record.extend(message);
    record
}

#[test]
fn a_hidden_hello_is_noticed() {
    let plain = hello("allowed.test", &[b"h2"]);
    for (kind, hidden) in [(0xfe0d, true), (0xfe0e, false)] {
        let Protocol::Tls(facts) = sniff(&with_extension(&plain, kind, &[0; 40])) else {
            panic!()
        };
        assert_eq!(facts.ech, hidden, "{kind:x}");
        assert_eq!(facts.server_name.as_deref(), Some("allowed.test"));
    }
}

#[test]
fn an_address_is_not_sent_as_a_name() {
    let Protocol::Tls(facts) = sniff(&hello("127.0.0.1", &[])) else {
        panic!()
    };
    assert_eq!(facts, ClientHello::default());
}

#[test]
fn every_beginning_of_a_client_hello_is_incomplete() {
    let whole = hello("allowed.test", &[]);
    for end in 0..whole.len() {
        assert_eq!(sniff(&whole[..end]), Protocol::Incomplete, "cut at {end}");
    }
}

#[test]
fn a_client_hello_cut_over_records_is_read_whole() {
    let whole = hello("allowed.test", &[]);
    let mut cut = Vec::new();
    for piece in whole[5..].chunks(100) {
        cut.extend([0x16, 3, 1, 0, piece.len() as u8]);
        cut.extend(piece);
    }
    let Protocol::Tls(facts) = sniff(&cut) else {
        panic!()
    };
    assert_eq!(facts.server_name.as_deref(), Some("allowed.test"));
}

#[test]
fn plain_protocols_are_told_apart() {
    assert_eq!(sniff(b"GET / HTTP/1.1\r\n"), Protocol::Http);
    assert_eq!(sniff(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Protocol::Http2Preface);
    assert_eq!(sniff(b"PRI * HT"), Protocol::Incomplete);
    assert_eq!(sniff(b"PROPFIND /"), Protocol::Http);
    assert_eq!(sniff(b"SSH-2.0-OpenSSH_9\r\n"), Protocol::Ssh);
    assert_eq!(sniff(b"SS"), Protocol::Incomplete);
    assert_eq!(sniff(b"GE"), Protocol::Incomplete);
    assert_eq!(sniff(&[0, 0, 0, 8, 4, 210, 22, 47]), Protocol::Postgres);
    assert_eq!(sniff(&[0, 0, 0, 40, 0, 3, 0, 2, b'u']), Protocol::Postgres);
    assert_eq!(sniff(&[0, 0, 0, 16, 4, 210, 22, 46]), Protocol::Postgres);
    assert_eq!(sniff(&[0, 0, 0, 8, 4, 210]), Protocol::Incomplete);
    assert!(matches!(
        sniff(&[0, 0, 0, 8, 4, 210, 22, 49]),
        Protocol::Unknown(_)
    ));
    assert!(matches!(sniff(&[0, 0x0c]), Protocol::Unknown(_)));
    assert!(matches!(sniff(b"\x16\x03\x01\x00\x00"), Protocol::Unknown(_)));
    assert!(matches!(
        sniff(b"\x16GET"),
        Protocol::Incomplete | Protocol::Unknown(_)
    ));
    assert!(matches!(sniff(&[b'A'; 64]), Protocol::Unknown(_)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = sniff(&bytes);
    }

    #[test]
    fn no_damage_to_a_client_hello_makes_it_panic(at in 0usize..300, value: u8, cut in 0usize..300) {
        let mut bytes = hello("allowed.test", &[b"h2"]);
        if let Some(byte) = bytes.get_mut(at) { *byte = value; }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let _ = sniff(&bytes);
    }
}
