//! The account's name behind a user id.

/// Name of the account that runs this process, from the system's list of accounts; `uid-N` where it has none.
pub fn owner_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(&accounts, uid).unwrap_or_else(|| format!("uid-{uid}"))
}

fn name_of(accounts: &str, uid: u32) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (id.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_user_id_has_a_name_or_none() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbroken\n";
        assert_eq!(name_of(accounts, 1000), Some("ada".to_owned()));
        assert_eq!(name_of(accounts, 1001), None);
    }
}
