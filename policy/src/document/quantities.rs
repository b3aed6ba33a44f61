//! Amounts as people write them: durations, sizes, rates.
use super::reader::Reader;
use crate::diagnostic::At;
use crate::host::shown;
use crate::limits::Rate;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// No grant and no fetched value lasts longer.
const LONGEST: jiff::SignedDuration = jiff::SignedDuration::from_hours(24 * 366);

/// A field with a duration.
pub(super) fn duration(
    node: Spanned<Node>,
    what: &str,
    reader: &mut Reader<'_>,
) -> Option<jiff::SignedDuration> {
    let text = reader.text(node, what)?;
    let read = parse_duration(&text.value);
    if read.is_none() {
        reader.push(
            text.at
                .error(format!("`{}` is not a duration", shown(&text.value)))
                .hint("write for example `30m`, `8h` or `7d`, up to 366d"),
        );
    }
    read
}

/// Reads `90s`, `30m`, `8h`, `7d`, or several in a row, up to 366 days, as policies write durations.
pub fn parse_duration(text: &str) -> Option<jiff::SignedDuration> {
    let mut total: i64 = 0;
    let mut digits = String::new();
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    let total = jiff::SignedDuration::from_secs(total);
    (digits.is_empty() && total.is_positive() && total <= LONGEST).then_some(total)
}

/// Plain bytes, `10KB`, `10KiB`, and so on up to `TB` and `TiB`.
pub(super) fn size(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Option<u64> {
    let at = reader.at(&node);
    let (read, given) = match &node.value {
        Node::Int(bytes) => (u64::try_from(*bytes).ok(), bytes.to_string()),
        Node::Text(text) => (parse_size(text), shown(text)),
        other => (None, other.kind().to_owned()),
    };
    if read.is_none() {
        reader.push(
            at.error(format!("{what} cannot be `{given}`"))
                .hint("write for example `50MB`, `10KiB`, or bytes as a number"),
        );
    }
    read
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// `5MB/s`: bytes in a second, at least 1.
pub(super) fn bandwidth(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Option<u64> {
    let text = reader.text(node, what)?;
    let size = text.value.trim().strip_suffix("/s").and_then(parse_size);
    let read = size.filter(|bytes| *bytes > 0);
    if read.is_none() {
        reader.push(
            text.at
                .error(format!("{what} cannot be `{}`", shown(&text.value)))
                .hint("write for example `5MB/s` or `500KiB/s`"),
        );
    }
    read
}

/// `20/s`, `100/m`, `1000/h`.
pub(super) fn rate(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Option<Rate> {
    let text = reader.text(node, what)?;
    let read = parse_rate(&text.value);
    if read.is_none() {
        reader.push(
            text.at
                .error(format!("{what} cannot be `{}`", shown(&text.value)))
                .hint("write for example `20/s`, `100/m` or `1000/h`"),
        );
    }
    read
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (count, unit) = text.trim().split_once('/')?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    let count = digits.then(|| count.parse::<u32>().ok()).flatten()?;
    (count > 0).then_some(Rate { count, seconds })
}

/// How many, at least 1.
pub(super) fn count(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Option<At<u64>> {
    let number = reader.integer(node, what)?;
    let count = u64::try_from(number.value).ok().filter(|n| *n > 0);
    if count.is_none() {
        reader.push(
            number
                .at
                .error(format!("{what} cannot be `{}`", number.value))
                .hint("name 1 or more, or remove it for any number"),
        );
    }
    count.map(|count| number.with(count))
}
