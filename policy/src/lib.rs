//! The policy language: what an agent may reach, with which credential, and why.
//!
//! Pure: no I/O, no clock, no randomness. The gateway decides with it, the command line and the
//! editor explain with it, so that all of them give the same answer.

pub mod credential;
pub mod decision;
pub mod diagnostic;
pub mod grant;
pub mod host;
pub mod path;
pub mod request;

pub use credential::{Credential, Place, Source};
pub use decision::{Decision, Permit, Policy, Reason, Refusal, Remedy};
pub use diagnostic::{PolicyText, Problem, Severity};
pub use grant::{Grant, GrantRefused, Overlay, Wanted};
pub use host::{Host, HostFault};
pub use path::{CanonicalPath, PathFault};
pub use request::{Destination, HttpRequest, Moment, Request, Who};
