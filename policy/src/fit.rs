//! How well a rule fits a request.
use crate::AddressClass;

/// How well a rule fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It does not, and no later moment will change that.
    Miss(Miss),
    /// It may, once more is known.
    Later,
    /// It does.
    Full,
    /// It refuses since what it looks at can be read in more than one way.
    Ambiguous(Unclear),
    /// It refuses since it needs to look, and cannot.
    Unread,
}

/// The first thing that did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Host,
    Port,
    Who,
    Protocol,
    Method,
    Path,
    /// By number.
    Header(usize),
    /// By number.
    Query(usize),
    Repository,
    Access,
    /// A ref that a push changes.
    Ref,
    Force,
    Database,
    User,
    /// It allows only what can be read in one way.
    Unclear(Unclear),
    /// Outside the hours of `during`.
    Time,
    Address(AddressClass),
}

/// What two servers may read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclear {
    Path,
    /// A condition by number, whose field stands there twice.
    Header(usize),
    /// A condition by number, whose parameter stands there twice, or in a query that cannot be decoded.
    Query(usize),
    /// Why.
    Git(&'static str),
}
