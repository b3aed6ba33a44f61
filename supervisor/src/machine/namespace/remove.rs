//! Removing what a machine left on disk, however deep and with whatever permissions.
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Removes a tree. Folders are first moved up to `top`, so that no path becomes long and no stack deep: a machine may
/// have made folders within folders without end.
///
/// # Errors
/// The first thing that cannot be removed.
pub(crate) fn remove(top: &Path) -> io::Result<()> {
    match fs::symlink_metadata(top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_dir() => return fs::remove_file(top),
        Ok(_) => open_up(top)?,
    }
    let mut next = 0u64;
    let mut folders: Vec<PathBuf> = Vec::new();
    clear(top, top, &mut next, &mut folders)?;
    while let Some(folder) = folders.pop() {
        open_up(&folder)?;
        clear(&folder, top, &mut next, &mut folders)?;
        fs::remove_dir(&folder)?;
    }
    fs::remove_dir(top)
}

/// Removes what lies in `folder`, moving folders up to `top` for later.
fn clear(folder: &Path, top: &Path, next: &mut u64, later: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
            continue;
        }
        // Moving a folder changes its `..`, for which it must be writable itself.
        open_up(&entry.path())?;
        let moved = loop {
            *next += 1;
            let to = top.join(format!(".removing-{next}"));
            if fs::symlink_metadata(&to).is_err() {
                break to;
            }
        };
        fs::rename(entry.path(), &moved)?;
        later.push(moved);
    }
    Ok(())
}

fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::remove;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn closed_folders_links_and_names_like_our_own_are_removed_and_nothing_outside() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("outside"), "x").unwrap();
        let top = place.path().join("top");
        fs::create_dir_all(top.join("a/closed")).unwrap();
        fs::create_dir_all(top.join(".removing-1/b")).unwrap();
        fs::write(top.join("a/closed/f"), "x").unwrap();
        symlink(place.path(), top.join("a/link")).unwrap();
        fs::set_permissions(top.join("a/closed"), Permissions::from_mode(0o000)).unwrap();
        remove(&top).unwrap();
        assert!(!top.exists());
        assert!(place.path().join("outside").exists());
        remove(&top).unwrap();
    }

    #[test]
    fn folders_deeper_than_any_path_may_be_long_are_removed() {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut at = std::os::fd::OwnedFd::from(fs::File::open(&top).unwrap());
        for _ in 0..3000 {
            mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = openat(&at, "deep", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        }
        remove(&top).unwrap();
        assert!(!top.exists());
    }
}
