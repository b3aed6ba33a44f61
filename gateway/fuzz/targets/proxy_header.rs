//! Fuzzes the PROXY header: a fault or a header is found at the same byte however the bytes come, and nothing after it matters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_gateway_fuzz::downstream::proxy_header::read;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    if let Ok(Some((_, length))) = whole {
        assert!(length <= bytes.len());
        assert_eq!(read(&bytes[..length]), whole);
        assert_eq!(read(&bytes[..length - 1]), Ok(None));
    }
    for end in 0..bytes.len().min(300) {
        let early = read(&bytes[..end]);
        assert!(early == Ok(None) || early == whole, "{early:?} became {whole:?}");
    }
});
