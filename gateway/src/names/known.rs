//! What is known of a name, whoever found it out.

/// What is known of a name. TTLs are seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It has addresses.
    Addresses {
        /// For how long.
        ttl: u32,
    },
    /// It exists and has none.
    Nothing,
    /// It does not exist.
    NoSuchName,
    /// Nobody says; the text says why.
    Failed(String),
}
