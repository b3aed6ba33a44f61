//! `sallyport policy schema`: the JSON Schema of policy files.
use super::line;
use crate::cli::Failure;
use std::io::Write;

pub(super) fn run(out: &mut dyn Write) -> Result<u8, Failure> {
    let schema = sallyport_policy::json_schema()
        .map_err(|error| Failure::new(format!("the schema cannot be written: {error}")))?;
    line(out, schema.trim_end())?;
    Ok(0)
}
