//! Fuzzes what a connection begins with: once it is known, later bytes change nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_gateway_fuzz::downstream::opening::{Opening, opening};
use sallyport_gateway_fuzz::sniff::{Protocol, sniff};
use std::mem::discriminant;

fuzz_target!(|bytes: &[u8]| {
    let (whole, whole_inside) = (opening(bytes), sniff(bytes));
    for end in 0..bytes.len().min(200) {
        let (early, inside) = (opening(&bytes[..end]), sniff(&bytes[..end]));
        assert!(
            early == Opening::Incomplete || early == whole,
            "{early:?} became {whole:?}"
        );
        match inside {
            Protocol::Incomplete => {}
            Protocol::Tls(_) => assert_eq!(inside, whole_inside),
            _ => assert_eq!(
                discriminant(&inside),
                discriminant(&whole_inside),
                "{inside:?} became {whole_inside:?}"
            ),
        }
    }
});
