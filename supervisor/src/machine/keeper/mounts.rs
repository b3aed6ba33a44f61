//! Mounting inside the machine's mount namespace.
use anyhow::{Context, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, mount_remount, unmount};
use std::ffi::CString;
use std::fs;
use std::path::{Component, Path};

/// Where the host's files are while the last of them are bound.
const OLD: &str = "/.host";
const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Mounts a file system of its own kind.
pub(super) fn fresh(kind: &str, at: &str, flags: MountFlags, options: &str) -> anyhow::Result<()> {
    let data = CString::new(options)?;
    mount(kind, at, kind, flags, data.as_c_str()).with_context(|| format!("cannot mount {kind} at `{at}`"))
}

/// Mounts `/proc` of the present process namespace.
pub(super) fn proc(at: &str) -> anyhow::Result<()> {
    fresh("proc", at, QUIET | MountFlags::NOEXEC, "").context(
        "a new /proc is refused where parts of the host's are covered, as in many containers: run there with an uncovered /proc",
    )
}

/// Shows a folder of the host below a writable layer of the machine's disk.
pub(super) fn overlay(lower: &str, upper: &str, work: &str, at: &str) -> anyhow::Result<()> {
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr");
    fresh("overlay", at, QUIET, &options)
}

/// Makes `root` the root; the host's files stay reachable until [`leave_old`].
pub(super) fn pivot(root: &str) -> anyhow::Result<()> {
    let old = Path::new(root).join(OLD.trim_start_matches('/'));
    fs::create_dir(&old)?;
    rustix::process::pivot_root(root, &old).context("cannot change the root")?;
    Ok(rustix::process::chdir("/")?)
}

/// Lets go of the host's files.
pub(super) fn leave_old() -> anyhow::Result<()> {
    unmount(OLD, UnmountFlags::DETACH).context("cannot let go of the host's files")?;
    Ok(fs::remove_dir(OLD)?)
}

/// Shows `source` and all that is mounted below it at `at`, read-only.
pub(super) fn bind_read_only(source: &str, at: &str) -> anyhow::Result<()> {
    let target = Path::new(at);
    if !target.is_absolute() || target.components().any(|part| part == Component::ParentDir) {
        bail!("the place must be an absolute path without `..`");
    }
    if fs::metadata(source)?.is_dir() {
        fs::create_dir_all(target)?;
    } else {
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::OpenOptions::new().create(true).append(true).open(target)?;
    }
    let target = fs::canonicalize(target)?;
    mount_bind_recursive(source, &target)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for (path, flags) in mounts.lines().filter_map(parse_mount) {
        if Path::new(&path).starts_with(&target) {
            mount_remount(
                path.as_str(),
                flags | MountFlags::BIND | MountFlags::RDONLY | QUIET,
                c"",
            )
            .with_context(|| format!("cannot make `{path}` read-only"))?;
        }
    }
    Ok(())
}

/// Shows a folder of the host as it is, for where it cannot be layered. Its own permissions protect it; the flag is a
/// second fence.
pub(super) fn bind_plain(source: &str, at: &str) -> anyhow::Result<()> {
    mount_bind_recursive(source, at).with_context(|| format!("cannot show `{source}`"))
}

/// Mount point and flags of a line of `/proc/self/mountinfo` (proc(5)).
fn parse_mount(line: &str) -> Option<(String, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let path = unescape(fields.next()?);
    let flag = |option| match option {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    let flags = fields
        .next()?
        .split(',')
        .map(flag)
        .fold(MountFlags::empty(), MountFlags::union);
    Some((path, flags))
}

/// Undoes the octal escapes of mountinfo.
fn unescape(field: &str) -> String {
    [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")]
        .iter()
        .fold(field.to_owned(), |text, (escape, plain)| {
            text.replace(escape, plain)
        })
}

#[cfg(test)]
mod tests {
    use super::parse_mount;
    use rustix::mount::MountFlags;

    #[test]
    fn a_mount_with_a_space_in_its_path_is_found_with_its_flags() {
        let line =
            r"36 35 98:0 /mnt1 /mnt/a\040b rw,noatime,nosuid master:1 - ext3 /dev/root rw,errors=continue";
        let (path, flags) = parse_mount(line).unwrap();
        assert_eq!(path, "/mnt/a b");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::NOSUID);
        assert_eq!(parse_mount("36 35"), None);
    }
}
