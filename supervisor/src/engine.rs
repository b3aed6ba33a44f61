//! What hosts runs: journal, executors, timers.
pub mod journal;
pub mod redb;
