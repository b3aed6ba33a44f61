//! What the explicit proxy reads before it knows whom it speaks with.

pub mod socks;

#[path = "../../src/downstream/opening.rs"]
pub mod opening;
#[path = "../../src/downstream/proxy_header.rs"]
pub mod proxy_header;
