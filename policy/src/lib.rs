//! The policy language: what an agent may reach, with which credential, and why.
//!
//! Pure: no I/O, no clock, no randomness. The gateway decides with it, the command line and the
//! editor explain with it, so that all of them give the same answer.

mod address;
mod again;
mod bucket;
mod check;
mod code;
mod compile;
mod condition;
pub mod credential;
mod decide;
pub mod decision;
pub mod diagnostic;
pub mod diff;
mod document;
mod during;
pub mod expectation;
pub mod explain;
mod fit;
mod git;
mod git_command;
mod git_match;
mod glob;
pub mod grant;
mod granting;
pub mod host;
mod host_index;
mod host_names;
mod host_pattern;
pub mod include;
mod known_host;
mod layer;
mod layer_check;
mod layering;
mod leaks;
pub mod learn;
mod lending;
mod limits;
mod lint;
pub mod path;
mod path_index;
mod path_names;
mod path_pattern;
mod policy;
pub mod preflight;
mod presets;
mod reach;
pub mod recorded;
pub mod replay;
pub mod request;
pub mod request_text;
mod resolve;
mod rule;
#[cfg(feature = "schema")]
mod schema;
mod sets;
pub mod shrink;
mod snippet;
mod space;
mod weighing;
mod wording;
mod yaml;

pub use address::{AddressClass, classify};
pub use code::Code;
pub use credential::{AnswerPart, Credential, Place, Source};
pub use decision::{Decision, Permit, Reason, Refusal, Remedy};
pub use diagnostic::{PolicyText, Problem, Severity};
pub use diff::Diff;
pub use document::read_duration;
pub use expectation::{RuleCoverage, TestReport};
pub use explain::{Change, Explanation, RuleNote, Verdict};
pub use git_command::git_command;
pub use grant::{Grant, GrantRefused, Overlay, Wanted};
pub use host::{Host, HostFault};
pub use include::included_names;
pub use known_host::KnownHost;
pub use layer::{Layer, LayerTexts};
pub use leaks::{Leaks, OnPlaceholder, OnUnknown, OnValue};
pub use learn::{Learned, Learner, Proposal};
pub use lending::Lender;
pub use limits::{Limits, Rate};
pub use path::{CanonicalPath, PathFault};
pub use policy::Policy;
pub use presets::{Preset, presets};
pub use recorded::{Line, Outcome, Recorded};
pub use replay::{People, Replay, ReplayReport};
pub use request::{
    Destination, GitAccess, GitRequest, HttpRequest, Moment, PostgresRequest, Protocol, RefUpdate, Request,
    SshRequest, Who,
};
pub use request_text::RequestFault;
#[cfg(feature = "schema")]
pub use schema::json_schema;
pub use shrink::{Shrink, ShrinkReport, Usage};
pub use space::{Axis, Extent, Part};
