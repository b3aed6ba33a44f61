//! The keeper of agents' work: runs, machines, conversations, people.
pub mod access;
pub mod activity;
pub mod cli;
pub mod conversation;
pub mod engine;
pub mod gateway;
pub mod lock;
pub mod machine;
pub mod model;
pub mod people;
pub mod registries;
pub mod run;
pub mod runs;
pub mod state_dir;
pub mod store;
pub mod up;
pub mod web;

#[cfg(test)]
mod testing;
