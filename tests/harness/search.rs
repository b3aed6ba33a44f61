//! Looks for a secret in every file below a folder, in each form in which it could have been written.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::{Path, PathBuf};

/// The files below `folder` that hold `value` as it is, in hex, or in base64 at any alignment.
///
/// Sockets, devices and pipes are passed over; links are not followed.
pub fn files_with(folder: &Path, value: &str) -> anyhow::Result<Vec<PathBuf>> {
    anyhow::ensure!(value.len() >= 8, "a value this short is found everywhere");
    let forms = forms(value);
    let mut found = Vec::new();
    walk(folder, &mut |path, content| {
        if forms
            .iter()
            .any(|form| content.windows(form.len()).any(|part| part == form.as_slice()))
        {
            found.push(path.to_owned());
        }
    })?;
    Ok(found)
}

fn forms(value: &str) -> Vec<Vec<u8>> {
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![value.as_bytes().to_vec(), hex.into_bytes()];
    for before in 0..3 {
        let padded = [&b"\0\0"[..before], value.as_bytes()].concat();
        let text = STANDARD.encode(padded);
        // The first and last groups also depend on what stands beside the value.
        let inner = &text[if before == 0 { 0 } else { 4 }..text.len() - 4];
        forms.push(inner.as_bytes().to_vec());
    }
    forms
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path, &[u8])) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // A machine that is being taken down loses folders while they are read.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(anyhow::anyhow!("cannot read `{}`: {error}", folder.display())),
    };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), each)?;
        } else if kind.is_file() {
            match std::fs::read(entry.path()) {
                Ok(content) => each(&entry.path(), &content),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => anyhow::bail!("cannot read `{}`: {error}", entry.path().display()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_value_is_found_at_every_alignment() {
        let value = "ghp_0123456789abcdef";
        for before in ["", "a", "ab", "abc"] {
            let folder = tempfile::tempdir().unwrap();
            let text = STANDARD.encode(format!("{before}{value}:tail"));
            std::fs::write(folder.path().join("note"), text).unwrap();
            assert_eq!(
                files_with(folder.path(), value).unwrap().len(),
                1,
                "after `{before}`"
            );
        }
    }
}
