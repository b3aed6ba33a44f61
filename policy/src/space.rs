//! The space of all requests, cut into cells within which every matcher of the policies at hand gives one answer.
//!
//! Each cell has a witness, a request that stands for all others in it, so that what is true of whole policies is found
//! out by deciding witnesses: there is no second implementation of deciding.
mod axis;
mod cover;
mod git;
mod globs;
mod hosts;
mod kinds;
mod matters;
mod nets;
mod paths;
mod refs;
mod repositories;
mod time;
mod walk;

pub use axis::Axis;
pub(crate) use cover::few;
pub use cover::{Extent, Part};
#[cfg(test)]
pub(crate) use git::view as git_view;
pub(crate) use globs::TooMany;
pub(crate) use hosts::{HostGroup, Hosts, Namer};
pub(crate) use nets::special_addresses;
pub(crate) use walk::{Candidate, Conditions, Found, Judge, Notes, Point, Walk};
