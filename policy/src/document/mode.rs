//! Reading `mode`: whether refusals are enforced, or only told.
use super::reader::{Fields, Reader};
use crate::diagnostic::Position;

/// Where `mode: observe` stands.
pub(super) fn read_mode(fields: &mut Fields, reader: &mut Reader<'_>) -> Option<Position> {
    let node = fields.take("mode")?;
    let mode = reader.choice(node, "`mode`", &["enforce", "observe"])?;
    (mode.value == "observe").then_some(mode.at)
}
