//! Vault.
