//! The keeper of agents' work: runs, machines, conversations, people.
pub mod conversation;
pub mod gateway;
pub mod machine;
pub mod runs;
