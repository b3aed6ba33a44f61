//! Fuzzes SOCKS: a whole conversation, of which no message is read before its end or beyond it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_gateway_fuzz::downstream::socks::wire::{Read, credentials, greeting, request};
use sallyport_policy::Host;
use std::fmt::Debug;

fuzz_target!(|bytes: &[u8]| {
    let Some(rest) = message(bytes, greeting) else {
        return;
    };
    let rest = message(rest, credentials).unwrap_or(rest);
    if message(rest, request).is_none() {
        return;
    }
    let Ok(Some((request, _))) = request(rest) else {
        return;
    };
    if let Ok(destination) = request.destination() {
        assert!(destination.port > 0);
        let told = destination.host.to_string();
        assert_eq!(
            Host::parse(&told),
            Ok(destination.host),
            "a host's form is stable"
        );
    }
});

/// What follows a message; none where it is no message, or not whole.
fn message<T: Debug + PartialEq>(bytes: &[u8], read: fn(&[u8]) -> Read<T>) -> Option<&[u8]> {
    let whole = read(bytes);
    for end in 0..bytes.len().min(600) {
        let early = read(&bytes[..end]);
        assert!(early == Ok(None) || early == whole, "{early:?} became {whole:?}");
    }
    let (_, length) = whole.ok()??;
    Some(&bytes[length..])
}
