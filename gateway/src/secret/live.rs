//! Values that must be fetched: what gives them, for how long they may be used, and who keeps them fresh for each session.
//!
//! A [`Provider`] speaks to a service that the operator has named in `sources.yaml`. Its connections are the gateway's own: the one
//! thing that is dialled without a permit. No agent can open, steer or read one; what a policy may name of a provider by `from` is
//! bounded by the operator too ([`Provider::admits`]).
//!
//! The [`Keeper`] fetches for a session when it is opened or its policy changes, renews and replaces before the end, writes each
//! lease down before its value is used, and gives everything back when the session ends, also after a crash.
mod aws;
mod counts;
mod github;
mod ground;
mod item;
mod keeper;
mod leases;
mod oauth;
mod own;
mod pattern;
mod provider;
mod settings;
mod state;
mod terms;
mod until;
mod vault;
mod web;

pub use counts::Counts;
pub use ground::{Change, Told};
pub use keeper::Keeper;
pub(super) use keeper::absent;
pub use own::{Named, Own};
pub use provider::{Fault, Fetched, Lease, Parent, Provider, Providers, Wanted};
pub use settings::{Settings, SettingsError};
pub use state::{Given, Unread};
pub use terms::Terms;
pub use until::Until;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
