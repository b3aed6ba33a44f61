//! Reading `known-hosts`: the keys by which hosts are known over ssh.
use super::reader::Reader;
use crate::known_host::KnownHost;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// Lines, each with its faults told where it stands.
pub(super) fn read(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<KnownHost> {
    let lines = reader.texts(node, "`known-hosts`");
    let mut known = Vec::new();
    for line in lines {
        match KnownHost::parse(&line.value) {
            Ok(host) => known.push(host),
            Err(fault) => {
                let problem = line.at.error(fault.why);
                reader.push(match fault.hint {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                });
            }
        }
    }
    known
}
