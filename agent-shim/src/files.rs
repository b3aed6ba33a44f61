//! Files in the machine: written atomically, read in pieces.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Most bytes that one read answers.
pub const READ_LIMIT: u64 = 1 << 20;

/// A file being written: beside its final place, under another name, until it is whole.
#[derive(Debug)]
pub struct Writing {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    mode: u32,
    bytes: u64,
}

impl Writing {
    /// Makes the folders and the temporary file; `tag` tells apart two writers of one path.
    ///
    /// # Errors
    /// The path is not absolute, names no file, or cannot be written.
    pub fn begin(path: &str, mode: u32, tag: u64) -> io::Result<Self> {
        let path = absolute(path)?.to_owned();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(invalid("the path names no file"));
        };
        fs::create_dir_all(folder)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{tag}", std::process::id()));
        let temporary = folder.join(temporary);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        Ok(Writing {
            path,
            temporary,
            file,
            mode,
            bytes: 0,
        })
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// Writing failed; the temporary file is removed when this is dropped.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Puts the file in its place; answers its size in bytes.
    ///
    /// # Errors
    /// The place is a folder, or the file cannot be put there.
    pub fn finish(mut self) -> io::Result<u64> {
        self.file
            .set_permissions(fs::Permissions::from_mode(self.mode & 0o7777))?;
        self.file.flush()?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        Ok(self.bytes)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove, and a left-over cannot be helped here.
        let _removed = fs::remove_file(&self.temporary);
    }
}

/// At most `limit` bytes (and [`READ_LIMIT`]) from `offset`, with the file's size in bytes.
///
/// # Errors
/// The path is not absolute, is no ordinary file, or cannot be read.
pub fn read(path: &str, offset: u64, limit: u64) -> io::Result<(Vec<u8>, u64)> {
    let path = absolute(path)?;
    // Without waiting, so that a named pipe does not hold the caller.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(invalid("is not an ordinary file"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut content = Vec::new();
    file.take(limit.min(READ_LIMIT)).read_to_end(&mut content)?;
    Ok((content, metadata.len()))
}

fn absolute(path: &str) -> io::Result<&Path> {
    let path = Path::new(path);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(invalid("the path is not absolute"))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::{Writing, read};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_appears_whole_with_its_mode_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c.sh");
        let mut writing = Writing::begin(path.to_str().unwrap(), 0o755, 1).unwrap();
        writing.write(b"one").unwrap();
        assert!(!path.exists());
        writing.write(b"two").unwrap();
        assert_eq!(writing.finish().unwrap(), 6);
        assert_eq!(std::fs::read(&path).unwrap(), b"onetwo");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_file_given_up_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        drop(Writing::begin(path.to_str().unwrap(), 0o644, 1).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_piece_is_read_with_the_size_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"0123456789").unwrap();
        assert_eq!(
            read(path.to_str().unwrap(), 3, 4).unwrap(),
            (b"3456".to_vec(), 10)
        );
        assert_eq!(read(path.to_str().unwrap(), 99, 4).unwrap(), (Vec::new(), 10));
    }

    #[test]
    fn a_relative_path_a_folder_and_a_missing_file_are_refused() {
        assert!(read("etc/passwd", 0, 1).is_err());
        assert!(read("/", 0, 1).is_err());
        assert!(read("/no/such/file", 0, 1).is_err());
        assert!(Writing::begin("x", 0o644, 1).is_err());
    }
}
