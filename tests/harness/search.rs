//! Looks for a secret in every file below a folder and in the memory of processes, in each form in which it could have been written.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files below `folder` that hold `value` as it is, in hex, or in base64 at any alignment.
///
/// Sockets, devices and pipes are passed over; links are not followed.
pub fn files_with(folder: &Path, value: &str) -> anyhow::Result<Vec<PathBuf>> {
    anyhow::ensure!(value.len() >= 8, "a value this short is found everywhere");
    let forms = forms(value);
    let finders: Vec<_> = forms.iter().map(memmem::Finder::new).collect();
    let mut found = Vec::new();
    walk(folder, &mut |path, content| {
        if finders.iter().any(|finder| finder.find(content).is_some()) {
            found.push(path.to_owned());
        }
    })?;
    Ok(found)
}

/// Whether the memory of a process holds `value` in one of these forms. None where it cannot be read: the process is gone, or not ours.
pub fn memory_with(pid: u32, value: &str) -> Option<bool> {
    let forms = forms(value);
    let finders: Vec<_> = forms.iter().map(memmem::Finder::new).collect();
    let mut maps = String::new();
    File::open(format!("/proc/{pid}/maps"))
        .and_then(|mut file| file.read_to_string(&mut maps))
        .ok()?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let longest = forms.iter().map(Vec::len).max()?;
    let mut read_any = false;
    let mut found = false;
    for (low, high) in maps.lines().filter_map(readable) {
        let mut at = low;
        let mut kept = Vec::new();
        while at < high {
            let size = usize::try_from((high - at).min(PIECE)).ok()?;
            let mut piece = vec![0; size];
            // Pages that nobody has used yet, or of a device, cannot be read.
            let Ok(count) = memory.read_at(&mut piece, at) else {
                break;
            };
            if count == 0 {
                break;
            }
            read_any = true;
            kept.extend_from_slice(&piece[..count]);
            found |= finders.iter().any(|finder| finder.find(&kept).is_some());
            kept.drain(..kept.len().saturating_sub(longest));
            at += count as u64;
        }
    }
    read_any.then_some(found)
}

/// Bytes of memory read at once.
const PIECE: u64 = 1 << 20;

/// The range of a mapping that may be read.
fn readable(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (low, high) = words.next()?.split_once('-')?;
    let mode = words.next()?;
    let range = (
        u64::from_str_radix(low, 16).ok()?,
        u64::from_str_radix(high, 16).ok()?,
    );
    mode.starts_with('r').then_some(range)
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
    fn a_value_in_a_processs_memory_is_found_and_none_where_it_is_not() {
        let value = format!("ghp_{}", std::process::id());
        let held = STANDARD.encode(format!("x{value}-0123456789"));
        let mut child = std::process::Command::new("cat")
            .env("HELD", &held)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Its memory is there once it is the other program.
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        let is_cat = || std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap() != own;
        while !is_cat() {
            std::thread::yield_now();
        }
        assert_eq!(
            memory_with(child.id(), &format!("{value}-0123456789")),
            Some(true)
        );
        assert_eq!(memory_with(child.id(), &format!("{value}-another")), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(memory_with(child.id(), &value), None);
    }

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
