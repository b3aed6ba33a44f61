//! The machine's file system: the host's programs under a layer of its own, and nothing else of the host.
use super::{Plan, etc, mounts};
use anyhow::Context;
use rustix::mount::{MountFlags, mount_bind, mount_bind_recursive};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Home of the machine's root.
pub(super) const HOME: &str = "/home/agent";
/// Where the shim lies in the machine.
pub(super) const SHIM: &str = "/var/lib/sallyport/bin/sallyport-shim";
/// The shim's environment; commands inherit it.
pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    ("HOME", HOME),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "root"),
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/var/lib/sallyport/bin",
    ),
    ("SHELL", "/bin/bash"),
    ("TERM", "dumb"),
    ("USER", "root"),
];
/// Folders of the host that the machine sees, if they exist.
const PROGRAMS: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];
/// Folders that the machine has besides, with their permission bits.
const FOLDERS: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/agent", 0o755),
    ("mnt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];
/// Folders below which the machine may make and replace files, though the host's are not its own.
const WRITABLE: &[(&str, u32)] = &[
    ("usr", 2),
    ("usr/local", 5),
    ("usr/lib/node_modules", 2),
    ("opt", 1),
];
/// Most folders prepared for that.
const WRITABLE_LIMIT: usize = 4000;
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Builds everything but `/proc` at `root` in the working directory.
pub(super) fn build(plan: &Plan) -> anyhow::Result<()> {
    for (path, mode) in FOLDERS {
        let path = Path::new("root").join(path);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(*mode))?;
    }
    etc::write(Path::new("root/etc"), &plan.hostname).context("cannot write the machine's /etc")?;
    mount_bind("root", "root").context("cannot mount the machine's root")?;
    PROGRAMS.iter().try_for_each(|name| programs(name))?;
    let run = "root/run";
    mounts::fresh("tmpfs", run, QUIET, "mode=755,size=64m")?;
    fs::create_dir(format!("{run}/sallyport"))?;
    fs::create_dir(format!("{run}/lock"))?;
    devices()
}

/// One of the host's program folders: a link stays a link, a folder gets a writable layer.
fn programs(name: &str) -> anyhow::Result<()> {
    let (host, at) = (format!("/{name}"), format!("root/{name}"));
    let Ok(metadata) = fs::symlink_metadata(&host) else {
        return Ok(());
    };
    if metadata.is_symlink() {
        return Ok(symlink(fs::read_link(&host)?, at)?);
    }
    let (upper, work) = (format!("upper/{name}"), format!("work/{name}"));
    for folder in [&at, &upper, &work] {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    let mut left = WRITABLE_LIMIT;
    for (path, depth) in WRITABLE
        .iter()
        .filter(|(path, _)| path.split('/').next() == Some(name))
    {
        open_up(
            &Path::new("/").join(path),
            &Path::new("upper").join(path),
            *depth,
            &mut left,
        )?;
    }
    if name == "usr" {
        symlink(SHIM, "upper/usr/bin/sallyport-shim")?;
    }
    mounts::overlay(&host, &upper, &work, &at).or_else(|error| {
        // The disk may lie on a file system that cannot be a layer (an overlay itself, a network share).
        log(&format!("{error:#}; `{host}` is shown without a writable layer"));
        mounts::bind_plain(&host, &at)
    })
}

/// Gives the machine a folder of its own in the layer for each of the host's, down to a depth.
fn open_up(host: &Path, layer: &Path, depth: u32, left: &mut usize) -> io::Result<()> {
    let readable =
        fs::symlink_metadata(host).is_ok_and(|m| m.is_dir() && m.permissions().mode() & 0o5 == 0o5);
    if !readable || *left == 0 {
        return Ok(());
    }
    *left -= 1;
    fs::create_dir_all(layer)?;
    fs::set_permissions(layer, Permissions::from_mode(0o755))?;
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(host)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path(), &layer.join(entry.file_name()), depth - 1, left)?;
        }
    }
    Ok(())
}

fn devices() -> anyhow::Result<()> {
    let dev = "root/dev";
    mounts::fresh("tmpfs", dev, MountFlags::NOSUID, "mode=755,size=1m")?;
    for name in DEVICES {
        let (host, at) = (format!("/dev/{name}"), format!("{dev}/{name}"));
        fs::write(&at, "")?;
        mount_bind_recursive(host.as_str(), at.as_str()).with_context(|| format!("cannot show `{host}`"))?;
    }
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(to, format!("{dev}/{name}"))?;
    }
    fs::create_dir(format!("{dev}/pts"))?;
    fs::create_dir(format!("{dev}/shm"))?;
    let terminals = "newinstance,ptmxmode=0666,mode=620";
    mounts::fresh(
        "devpts",
        "root/dev/pts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        terminals,
    )?;
    mounts::fresh("tmpfs", "root/dev/shm", QUIET, "mode=1777")
}

/// Into the keeper's log, which is this process's standard error.
fn log(text: &str) {
    use std::io::Write;
    // A full disk is told by what needs the disk.
    let _logged = writeln!(io::stderr(), "{text}");
}
