//! The machine's `/etc`: what everybody may read of the host's settings, without its people, keys and proxies.
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Not copied, even if everybody may read them: names within `/etc`, without their ending `-` or `.d` companions.
const LEFT_OUT: &[&str] = &[
    "apt/auth.conf",
    "apt/auth.conf.d",
    "cloud",
    "cron.d",
    "default/grub",
    "docker",
    "environment",
    "fstab",
    "group",
    "group-",
    "gshadow",
    "gshadow-",
    "hostname",
    "hosts",
    "krb5.keytab",
    "kubernetes",
    "machine-id",
    "mtab",
    "netplan",
    "network",
    "NetworkManager",
    "nsswitch.conf",
    "passwd",
    "passwd-",
    "rancher",
    "resolv.conf",
    "shadow",
    "shadow-",
    "ssh",
    "ssl/private",
    "subgid",
    "subuid",
    "sudoers",
    "sudoers.d",
    "systemd",
    "udev",
    "wireguard",
    "wpa_supplicant",
];
/// Longest file copied, in bytes.
const FILE_LIMIT: u64 = 16 << 20;
/// Most files copied.
const FILES_LIMIT: usize = 20_000;

/// Writes the machine's `/etc` to `to`.
pub(super) fn write(to: &Path, hostname: &str) -> io::Result<()> {
    let mut left = FILES_LIMIT;
    copy(Path::new("/etc"), to, Path::new(""), &mut left)?;
    let put = |name: &str, content: &str| {
        let path = to.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))
    };
    put("hostname", &format!("{hostname}\n"))?;
    put(
        "hosts",
        &format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n"),
    )?;
    put(
        "resolv.conf",
        &format!(
            "nameserver {}\noptions timeout:5 attempts:2\n",
            super::net::NAMESERVER
        ),
    )?;
    put(
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
        protocols: files\nservices: files\nethers: files\nrpc: files\n",
    )?;
    put(
        "passwd",
        "root:x:0:0:agent:/home/agent:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
        nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )?;
    put(
        "group",
        "root:x:0:\ndaemon:x:1:\ntty:x:5:\nstaff:x:50:\nnogroup:x:65534:\n",
    )?;
    put("fstab", "")?;
    symlink("/proc/self/mounts", to.join("mtab"))?;
    put("machine-id", &format!("{}\n", uuid::Uuid::now_v7().simple()))
}

fn copy(from: &Path, to: &Path, within: &Path, left: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let within = within.join(entry.file_name());
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if LEFT_OUT.iter().any(|name| Path::new(name) == within) || *left == 0 {
            continue;
        }
        *left -= 1;
        let metadata = entry.metadata()?;
        let mode = metadata.permissions().mode();
        if metadata.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if metadata.is_dir() && mode & 0o5 == 0o5 {
            fs::create_dir_all(&to)?;
            fs::set_permissions(&to, Permissions::from_mode(0o755))?;
            copy(&from, &to, &within, left)?;
        } else if metadata.is_file() && mode & 0o4 == 0o4 && metadata.len() <= FILE_LIMIT {
            fs::write(&to, fs::read(&from)?)?;
            fs::set_permissions(&to, Permissions::from_mode(mode & 0o755 | 0o200))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use std::fs;

    #[test]
    fn people_keys_and_names_of_the_host_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "m1").unwrap();
        let etc = folder.path();
        for name in [
            "shadow",
            "sudoers",
            "ssh",
            "ssl/private",
            "krb5.keytab",
            "environment",
        ] {
            assert!(!etc.join(name).exists(), "{name}");
        }
        assert_eq!(fs::read_to_string(etc.join("hostname")).unwrap(), "m1\n");
        assert_eq!(fs::read_to_string(etc.join("passwd")).unwrap().lines().count(), 3);
        assert!(
            fs::read_to_string(etc.join("resolv.conf"))
                .unwrap()
                .starts_with("nameserver 127.0.0.53\n")
        );
    }
}
