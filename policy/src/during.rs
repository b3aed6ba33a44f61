//! Time windows: the days and hours in which a rule holds, in a named time zone.
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::fmt;
use std::sync::LazyLock;

/// Days as they are written, Monday first.
pub(crate) const DAYS: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// The IANA database as of this build: whatever the machine has installed changes no answer.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// When a rule holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct During {
    /// Monday first. A window over midnight belongs to the day on which it begins.
    pub(crate) days: [bool; 7],
    /// Minutes after midnight, from (inclusive) and to (exclusive); `to <= from` runs over midnight into the next day.
    pub(crate) hours: (u16, u16),
    /// Where the clock hangs.
    pub(crate) zone: TimeZone,
}

/// A time zone by its IANA name.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok()
}

impl During {
    /// Whether the window is open at this instant.
    pub(crate) fn holds(&self, now: jiff::Timestamp) -> bool {
        let local = self.zone.to_datetime(now);
        let today = usize::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        let minute = u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let on = |day: usize| self.days.get(day % 7).copied().unwrap_or_default();
        let (from, to) = self.hours;
        if from < to {
            return on(today) && (from..to).contains(&minute);
        }
        (on(today) && minute >= from) || (on(today + 6) && minute < to)
    }
}

impl fmt::Display for During {
    /// `mon, tue, 07:00-20:00 Europe/Berlin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            for (day, _) in DAYS.iter().zip(self.days).filter(|(_, on)| *on) {
                write!(f, "{day}, ")?;
            }
        }
        let clock = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let (from, to) = self.hours;
        let zone = self.zone.iana_name().unwrap_or("UTC");
        write!(f, "{}-{} {zone}", clock(from), clock(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &[usize], hours: (u16, u16), name: &str) -> During {
        let mut on = [false; 7];
        for day in days {
            on[*day] = true;
        }
        During {
            days: on,
            hours,
            zone: zone(name).unwrap(),
        }
    }

    fn holds(during: &During, at: &str) -> bool {
        during.holds(at.parse().unwrap())
    }

    #[test]
    fn a_window_follows_its_zone_through_summer_time() {
        let work = window(&[0, 1, 2, 3, 4], (7 * 60, 20 * 60), "Europe/Berlin");
        // A Monday in winter: UTC+1. In summer: UTC+2.
        assert!(!holds(&work, "2026-11-30T05:59:59Z"));
        assert!(holds(&work, "2026-11-30T06:00:00Z"));
        assert!(holds(&work, "2026-11-30T18:59:59Z"));
        assert!(!holds(&work, "2026-11-30T19:00:00Z"));
        assert!(holds(&work, "2026-06-29T05:00:00Z"));
        assert!(!holds(&work, "2026-06-29T18:00:00Z"));
        assert!(!holds(&work, "2026-11-29T12:00:00Z"), "a Sunday");
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let night = window(&[4], (22 * 60, 6 * 60), "UTC");
        assert!(holds(&night, "2026-11-27T22:00:00Z"), "Friday night");
        assert!(holds(&night, "2026-11-28T05:59:00Z"), "the morning after");
        assert!(!holds(&night, "2026-11-28T06:00:00Z"));
        assert!(!holds(&night, "2026-11-28T23:00:00Z"), "Saturday night");
        assert!(!holds(&night, "2026-11-27T05:00:00Z"), "Friday morning");
        let sunday = window(&[6], (23 * 60, 60), "UTC");
        assert!(holds(&sunday, "2026-11-30T00:30:00Z"), "Monday after midnight");
    }

    #[test]
    fn any_instant_has_an_answer() {
        let odd = window(&[0], (1, 24 * 60), "Antarctica/Troll");
        for at in [
            jiff::Timestamp::MIN,
            jiff::Timestamp::MAX,
            jiff::Timestamp::UNIX_EPOCH,
        ] {
            let _ = odd.holds(at);
        }
        assert_eq!(odd.to_string(), "mon, 00:01-24:00 Antarctica/Troll");
        assert_eq!(zone("Europe/Nowhere"), None);
    }
}
