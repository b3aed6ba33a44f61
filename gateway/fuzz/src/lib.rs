//! The pure modules of the gateway that are fuzzed, by path: whatever they import must be here too, and small.
#![expect(
    dead_code,
    reason = "of a module that is taken in, not everything is fuzzed"
)]

pub mod downstream;
pub mod names;
pub mod secret;

#[path = "../../src/http/head.rs"]
pub mod head;
#[path = "../../src/sniff.rs"]
pub mod sniff;
