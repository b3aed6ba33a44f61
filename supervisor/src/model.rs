//! Models behind one trait.
pub mod types;
