//! Git's wire format as far as a decision needs it: what a push changes, and how a refusal is told. Pure: bytes in, facts out.
//!
//! Over ssh and smart HTTP a push is the same stream: commands in pkt-lines, then a pack. [`push::PushReader`] is fed with it.
//! [`contents::Contents`] inflates what stands in it.
pub mod contents;
pub mod object;
pub mod pack;
pub mod pkt_line;
pub mod push;
pub mod report;
