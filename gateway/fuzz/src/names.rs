//! DNS queries and their answers.

#[path = "../../src/names/answer.rs"]
pub mod answer;
#[path = "../../src/names/kept.rs"]
pub mod kept;
#[path = "../../src/names/known.rs"]
pub mod known;
#[path = "../../src/names/refused.rs"]
pub mod refused;
#[path = "../../src/names/synthetic.rs"]
pub mod synthetic;
