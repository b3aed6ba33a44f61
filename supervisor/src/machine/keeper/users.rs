//! Which users of the host a machine's users are.
use anyhow::Context;
use rustix::process::{getegid, geteuid};
use std::fs;

/// First subordinate id that root gives to machines, and how many.
const SUBORDINATE_BASE: u32 = 100_000;
const SUBORDINATE_COUNT: u32 = 65_536;
/// Who a machine's root is where root has no subordinate ids (in a container): nobody.
const NOBODY: u32 = 65_534;

/// The mapping of a machine's users, from 0, to the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The host's user that is the machine's root.
    pub(super) base: u32,
    group: u32,
    count: u32,
    /// Whether supplementary groups can no longer be changed, which an ordinary user must give up.
    pub(super) deny_groups: bool,
}

impl Mapping {
    /// What this process may map: an ordinary user itself, root a range of nobodies.
    pub(super) fn choose() -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            let (base, group) = (geteuid().as_raw(), getegid().as_raw());
            return Ok(Mapping {
                base,
                group,
                count: 1,
                deny_groups: true,
            });
        }
        let own = fs::read_to_string("/proc/self/uid_map").context("cannot read /proc/self/uid_map")?;
        let (base, count) = if covers(&own, SUBORDINATE_BASE, SUBORDINATE_COUNT) {
            (SUBORDINATE_BASE, SUBORDINATE_COUNT)
        } else {
            (NOBODY, 1)
        };
        Ok(Mapping {
            base,
            group: base,
            count,
            deny_groups: false,
        })
    }

    /// Gives the ids to a process that is in a new user namespace.
    pub(super) fn write(&self, pid: u32) -> anyhow::Result<()> {
        let Mapping {
            base,
            group,
            count,
            deny_groups,
        } = self;
        let put = |name: &str, text: String| {
            let path = format!("/proc/{pid}/{name}");
            fs::write(&path, text).with_context(|| format!("cannot write `{path}`"))
        };
        if *deny_groups {
            put("setgroups", "deny".to_owned())?;
        }
        put("gid_map", format!("0 {group} {count}\n"))?;
        put("uid_map", format!("0 {base} {count}\n"))
    }
}

/// Whether a `uid_map` has all of a range of ids.
fn covers(map: &str, base: u32, count: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(length))) = (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        inside <= u64::from(base) && u64::from(base) + u64::from(count) <= inside + length
    })
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn the_range_must_lie_within_one_line_of_the_map() {
        assert!(covers("         0          0 4294967295\n", 100_000, 65_536));
        assert!(!covers("         0     100000      65536\n", 100_000, 65_536));
        assert!(!covers("nonsense\n", 100_000, 65_536));
    }
}
