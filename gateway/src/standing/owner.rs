//! The account's name behind a file's user id.

/// Name of an account, from the system's list of accounts; `uid-N` where it has none.
pub(super) fn name(uid: u32) -> String {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    find(&accounts, uid).unwrap_or_else(|| format!("uid-{uid}"))
}

fn find(accounts: &str, uid: u32) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (id.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}
