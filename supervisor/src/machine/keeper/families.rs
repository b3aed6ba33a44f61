//! Kernel interfaces that no network namespace fences: sockets to the hypervisor and other odd families, and io_uring,
//! which makes sockets without a system call that could be refused.
use anyhow::Context;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`: each machine has its own of these.
const FAMILIES: [u64; 4] = [1, 2, 10, 16];
const EAFNOSUPPORT: u32 = 97;
const ENOSYS: u32 = 38;
/// The x32 calls of an x86-64 kernel have this bit.
const X32: i64 = 0x4000_0000;

/// Numbers of `socket` and `io_uring_setup`.
#[cfg(target_arch = "x86_64")]
const CALLS: (i64, i64) = (41, 425);
#[cfg(not(target_arch = "x86_64"))]
const CALLS: (i64, i64) = (198, 425);

/// Refuses them for this process and all that come from it, for good.
///
/// # Errors
/// The kernel has no seccomp filters, or not for this processor.
pub(super) fn fence() -> anyhow::Result<()> {
    let (socket, ring) = CALLS;
    let conditions = FAMILIES
        .iter()
        .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family))
        .collect::<Result<Vec<_>, _>>()?;
    let other_family = SeccompRule::new(conditions)?;
    let sockets = [socket, socket | X32].map(|call| (call, vec![other_family.clone()]));
    let rings = [ring, ring | X32].map(|call| (call, Vec::new()));
    apply(BTreeMap::from(sockets), EAFNOSUPPORT)?;
    apply(BTreeMap::from(rings), ENOSYS)
}

fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, error: u32) -> anyhow::Result<()> {
    let processor = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error),
        processor,
    )?;
    let program = BpfProgram::try_from(filter)?;
    apply_filter(&program).context("the kernel takes no seccomp filter")
}
