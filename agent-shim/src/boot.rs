//! The name of this start of the shim: tells a restart from a reconnect.
use std::sync::OnceLock;

/// Random, new at each start of this process.
pub(crate) fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let mut bytes = [0u8; 16];
        // Only an early kernel has no randomness; then the process id has to do.
        if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).is_err() {
            return format!("pid{}", std::process::id());
        }
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    })
}
