//! Reading `during`: the days and hours in which a rule holds.
use super::reader::{Reader, closest};
use crate::diagnostic::At;
use crate::during::{DAYS, During, zone};
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// A day's minutes.
const DAY: u16 = 24 * 60;

pub(super) fn read_during(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<At<During>> {
    let mut fields = reader.fields(node, "`during`", &["days", "hours", "zone"])?;
    let at = fields.at.clone();
    let days = fields.take("days").map(|node| read_days(node, reader));
    let hours = fields.take("hours").map(|node| read_hours(node, reader));
    if days.is_none() && hours.is_none() {
        reader.push(
            at.error("`during` names neither `days` nor `hours`")
                .hint("write for example `days: mon-fri` and `hours: \"07:00-20:00\"`"),
        );
    }
    let zone = match fields.take("zone") {
        Some(node) => read_zone(node, reader),
        None => {
            let hint = "write for example `zone: Europe/Berlin` or `zone: UTC`";
            reader.push(at.error("`during` does not say in which time zone").hint(hint));
            None
        }
    };
    let value = During {
        days: days.unwrap_or([true; 7]),
        hours: hours.unwrap_or(Some((0, DAY)))?,
        zone: zone?,
    };
    Some(At { value, at })
}

/// `mon`, `mon-fri`, `sat-mon`, or a list of those.
fn read_days(node: Spanned<Node>, reader: &mut Reader<'_>) -> [bool; 7] {
    let mut days = [false; 7];
    for word in reader.texts(node, "`days`") {
        let (first, last) = word
            .value
            .split_once('-')
            .unwrap_or((word.value.as_str(), word.value.as_str()));
        let number = |day: &str| DAYS.iter().position(|known| *known == day.trim());
        let Some((first, last)) = number(first).zip(number(last)) else {
            let problem = word
                .at
                .error(format!("`{}` is not a day of the week", shown(&word.value)));
            let lower = word.value.to_lowercase();
            reader.push(match closest(&lower, DAYS).filter(|_| !lower.contains('-')) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint(
                    "write `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`, or a range such as `mon-fri`",
                ),
            });
            continue;
        };
        let count = (last + 7 - first) % 7;
        for day in first..=first + count {
            days[day % 7] = true;
        }
    }
    days
}

/// `07:00-20:00`; the end may be `24:00`, or lie on the next day.
fn read_hours(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<(u16, u16)> {
    let text = reader.text(node, "`hours`")?;
    let parsed = text.value.split_once('-').and_then(|(from, to)| {
        minutes(from)
            .filter(|from| *from < DAY)
            .zip(minutes(to))
            .filter(|(from, to)| from != to)
    });
    if parsed.is_none() {
        reader.push(
            text.at
                .error(format!("`hours` cannot be `{}`", shown(&text.value)))
                .hint("write for example \"07:00-20:00\", or \"22:00-06:00\" over midnight"),
        );
    }
    parsed
}

/// `07:30` as minutes after midnight, up to `24:00`.
fn minutes(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str| -> Option<u16> {
        (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse().ok())
            .flatten()
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let total = hour * 60 + minute;
    (minute < 60 && total <= DAY).then_some(total)
}

fn read_zone(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<jiff::tz::TimeZone> {
    let name = reader.text(node, "`zone`")?;
    let zone = zone(&name.value);
    if zone.is_none() {
        reader.push(
            name.at
                .error(format!("no time zone is called `{}`", shown(&name.value)))
                .hint("write a name of the IANA database, for example `Europe/Berlin`"),
        );
    }
    zone
}
