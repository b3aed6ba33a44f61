//! Reading `limit`: how much may pass under a rule.
use super::quantities::{bandwidth, count, rate, size};
use super::reader::Reader;
use crate::diagnostic::At;
use crate::limits::Limits;
use crate::yaml::Node;
use serde_saphyr::Spanned;

const LIMIT: &[&str] = &[
    "connections",
    "bytes_out",
    "request_bytes",
    "response_bytes",
    "rate",
    "bandwidth",
];

pub(super) fn read_limit(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<At<Limits>> {
    let before = reader.problems.len();
    let mut fields = reader.fields(node, "`limit`", LIMIT)?;
    let at = fields.at.clone();
    let connections = fields
        .take("connections")
        .and_then(|node| count(node, "`connections`", reader))
        .and_then(|count| {
            let fits = u32::try_from(count.value).ok();
            if fits.is_none() {
                reader.push(count.at.error("`connections` is too large"));
            }
            fits
        });
    let mut bytes = |name: &str| {
        let node = fields.take(name)?;
        size(node, &format!("`{name}`"), reader)
    };
    let (bytes_out, request_bytes, response_bytes) = (
        bytes("bytes_out"),
        bytes("request_bytes"),
        bytes("response_bytes"),
    );
    let rate = fields.take("rate").and_then(|node| rate(node, "`rate`", reader));
    let bandwidth = fields
        .take("bandwidth")
        .and_then(|node| bandwidth(node, "`bandwidth`", reader));
    let value = Limits {
        connections,
        bytes_out,
        request_bytes,
        response_bytes,
        rate,
        bandwidth,
    };
    if value == Limits::default() && reader.problems.len() == before {
        reader.push(
            at.error("`limit` limits nothing")
                .hint("write for example `limit: {connections: 4, bytes_out: 50MB, rate: 20/s}`"),
        );
    }
    Some(At { value, at })
}
