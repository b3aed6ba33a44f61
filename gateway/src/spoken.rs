//! The shape of protocols other than HTTP that are ended here: ssh, PostgreSQL, and what comes after them.
use crate::Shared;
use crate::intake::Intake;
use std::sync::Arc;

/// A protocol with a log-in of its own, spoken with the client on one side and with the upstream on the other.
pub trait Spoken: Send {
    /// Serves a connection whose first bytes were looked at, not taken; returns when it is over.
    ///
    /// It decides at the protocol's own moment (`Moment::Ssh`, `Moment::Postgres`) and refuses in the protocol's own words with
    /// the decision's id; it dials by the permit alone, lets the log-in through after its record is durable, is ended by
    /// `lasting::over`, and leaves one record on every way out.
    fn serve(self, shared: Arc<Shared>, intake: Intake) -> impl Future<Output = ()> + Send;
}
