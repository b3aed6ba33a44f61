//! Time windows: the days and hours in which a rule holds, in a named time zone.

/// When a rule holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct During {
    /// Monday first.
    pub(crate) days: [bool; 7],
    /// Minutes after midnight, from (inclusive) and to (exclusive); `to <= from` runs over midnight into the next day.
    pub(crate) hours: (u16, u16),
    /// Where the clock hangs.
    pub(crate) zone: jiff::tz::TimeZone,
}
