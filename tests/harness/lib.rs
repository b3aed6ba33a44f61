//! Starts the real parts for tests as an ordinary user with an empty home, and looks for what must not be there.
pub mod search;
pub mod stage;
pub mod way;

pub use search::{files_with, memory_with};
pub use stage::{Running, Stage};
pub use way::Way;
