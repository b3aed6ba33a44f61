//! The files by which plain `ssh` and `git` work inside a machine: whom to trust, and the placeholder keys to show. Pure.
use crate::run::state::SessionFacts;
use std::collections::BTreeMap;

/// How a private key begins in OpenSSH's form.
const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";
const CONFIG: &str = "/etc/ssh/ssh_config.d/sallyport.conf";

/// Whether only its owner may read a file: `ssh` shows no key that others may read.
pub fn is_private(text: &str) -> bool {
    text.starts_with(KEY)
}

/// Files by path; none where the gateway ends no ssh.
pub(super) fn files(session: &SessionFacts) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    if session.ssh_host_key.is_empty() {
        return files;
    }
    files.insert(KNOWN_HOSTS.to_owned(), format!("{}\n", session.ssh_host_key));
    let mut config = String::new();
    for (name, placeholder) in session.placeholders.iter().filter(|(_, text)| is_private(text)) {
        let path = format!("/etc/ssh/sallyport/{name}");
        config.push_str(&format!("IdentityFile {path}\n"));
        files.insert(path, format!("{}\n", placeholder.trim_end()));
    }
    if !config.is_empty() {
        files.insert(CONFIG.to_owned(), config);
    }
    files
}
