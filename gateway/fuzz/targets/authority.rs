//! Fuzzes targets of CONNECT and `Host`: what can be read has one form, and reads as itself again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_gateway_fuzz::head::{destination_text, parse_authority};

fuzz_target!(|text: &str| {
    for port in [None, Some(80)] {
        let Ok(destination) = parse_authority(text, port) else {
            continue;
        };
        assert!(destination.port > 0 && !text.contains('@'), "{text}");
        let told = destination_text(&destination);
        assert_eq!(
            parse_authority(&told, None),
            Ok(destination),
            "{text} is told as {told}"
        );
    }
});
