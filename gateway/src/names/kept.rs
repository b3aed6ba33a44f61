//! The file in which a session's synthetic addresses outlive the gateway's process: a machine's open programs and caches hold them.
//!
//! One line for each name, `SLOT NAME`, with the slot in five hex digits; lines are added and never changed. Nothing is synced: after
//! a power cut the machine looks its names up anew.
use sallyport_policy::Host;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Digits of a slot.
const DIGITS: usize = 5;

/// One session's file.
#[derive(Debug)]
pub struct NameFile(File);

impl NameFile {
    /// Opens the file, or makes it, and reads what it has. A line that is none, as a full disk leaves it, is passed over.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<(u32, String)>)> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let names = text.lines().filter_map(read).collect();
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        Ok((Self(file), names))
    }

    /// Adds a name.
    pub fn add(&mut self, slot: u32, name: &str) -> io::Result<()> {
        self.0
            .write_all(format!("{slot:0width$x} {name}\n", width = DIGITS).as_bytes())
    }
}

fn read(line: &str) -> Option<(u32, String)> {
    let (slot, name) = line.split_once(' ')?;
    if slot.len() != DIGITS {
        return None;
    }
    let slot = u32::from_str_radix(slot, 16).ok()?;
    match Host::parse(name).ok()? {
        Host::Name(canonical) if *canonical == *name => Some((slot, canonical.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_read_again_and_a_torn_line_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-1.names");
        let (mut file, names) = NameFile::open(&path).unwrap();
        assert_eq!(names, []);
        file.add(0x1a2b, "allowed.test").unwrap();
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"00003 \xff.test\nzzzzz a.test\n00004 A.TEST\n00005 127.0.0.1\n0000")
            .unwrap();
        let (mut file, names) = NameFile::open(&path).unwrap();
        assert_eq!(names, [(0x1a2b, "allowed.test".to_owned())]);
        file.add(7, "other.test").unwrap();
        let (_, names) = NameFile::open(&path).unwrap();
        assert_eq!(names.last(), Some(&(7, "other.test".to_owned())));
    }
}
