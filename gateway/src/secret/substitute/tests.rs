//! The places of a placeholder in an outgoing head, one by one.
