//! When windows open and close in the coming year.
use crate::during::During;
use jiff::civil::Time;
use jiff::{Span, Timestamp};

/// Days that are looked at: every day of the year and every change of the clocks.
const DAYS: i64 = 368;

/// Every instant of the coming year at which this window may open or close, also where clocks are changed.
pub(super) fn boundaries(during: &During, from: Timestamp) -> Vec<Timestamp> {
    let Ok(end) = from.checked_add(jiff::SignedDuration::from_hours(24 * DAYS)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut day = during.zone.to_datetime(from).date();
    for _ in 0..DAYS {
        for minutes in [during.hours.0, during.hours.1, 0] {
            let clock = Time::midnight().checked_add(Span::new().minutes(i64::from(minutes % (24 * 60))));
            let instant = clock.ok().and_then(|clock| {
                // Both readings of an hour that comes twice; the later one of an hour that does not come.
                let local = day.to_datetime(clock);
                let ambiguous = during.zone.to_ambiguous_timestamp(local);
                let later = during.zone.to_ambiguous_timestamp(local).later().ok();
                found.extend(later);
                ambiguous.earlier().ok()
            });
            found.extend(instant);
        }
        let Ok(next) = day.tomorrow() else { break };
        day = next;
    }
    found.extend(
        during
            .zone
            .following(from)
            .map(|change| change.timestamp())
            .take_while(|at| *at < end),
    );
    found.retain(|instant| *instant > from && *instant < end);
    found
}
