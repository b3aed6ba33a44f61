//! SOCKS as bytes.

#[path = "../../../src/downstream/socks/wire.rs"]
pub mod wire;
