//! The keeper of agents' work: runs, machines, conversations, people.
pub mod cli;
pub mod conversation;
pub mod gateway;
pub mod machine;
pub mod people;
pub mod runs;
pub mod web;
