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
    /// Opens the file, or makes it, and reads what it has. A line that is none is passed over. One without an end, as a
    /// full disk leaves it, is cut off: half of a name can be a name, and must not stand for the whole.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<(u32, String)>)> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
        }
        let text = String::from_utf8_lossy(&bytes[..whole]);
        Ok((Self(file), text.lines().filter_map(read).collect()))
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

    #[test]
    fn half_of_a_name_is_not_believed_at_this_start_or_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-1.names");
        let whole = [(1, "a.test".to_owned())];
        std::fs::write(&path, "00001 a.test\n0002a api.example.co").unwrap();
        for _ in 0..2 {
            assert_eq!(NameFile::open(&path).unwrap().1, whole);
        }
        std::fs::write(&path, "0002a api.example.co").unwrap();
        for _ in 0..2 {
            assert_eq!(NameFile::open(&path).unwrap().1, []);
        }
    }
}
