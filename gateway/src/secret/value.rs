//! A secret's value: locked in memory, wiped when it is dropped, never shown.
use super::common;
use super::locked::Locked;
use std::fmt;

/// A secret's value. Wiped when dropped; cannot be printed, cloned or serialised.
pub struct Value(Locked);

impl Value {
    /// Takes a value over; the vector is wiped with it.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Locked::new(bytes))
    }
    /// How many bytes.
    #[expect(clippy::len_without_is_empty, reason = "only its bounds are asked for")]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }
    /// Whether it has line ends or other control characters.
    pub fn has_control_characters(&self) -> bool {
        self.bytes().iter().any(u8::is_ascii_control)
    }
    /// Whether two values are the same, in constant time for one length.
    pub fn is_same(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.bytes(), other.bytes()).is_ok()
    }
    /// Whether it is a word that many use as a password, or one sign repeated.
    pub fn is_common(&self) -> bool {
        common::is_common(self.bytes())
    }
    /// Whether another value stands in this one.
    pub fn contains(&self, other: &Self) -> bool {
        memchr::memmem::find(self.bytes(), other.bytes()).is_some()
    }
    /// The bytes; only for this module's children.
    pub(in crate::secret) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[value]")
    }
}
