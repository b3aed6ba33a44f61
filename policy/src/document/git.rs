//! Reading what a rule says of git: repository, access, refs, force.
use super::GitPart;
use super::reader::{Fields, Reader};
use crate::GitAccess;

/// The fields of `to` that belong to `protocol: git`.
pub(super) fn read_git(fields: &mut Fields, reader: &mut Reader<'_>) -> GitPart {
    let access = fields
        .take("access")
        .and_then(|node| reader.choice(node, "`access`", &["read", "write"]));
    GitPart {
        repository: fields
            .take("repository")
            .map(|node| reader.texts(node, "`repository`")),
        access: access.map(|word| {
            word.with(match word.value.as_str() {
                "write" => GitAccess::Write,
                _ => GitAccess::Read,
            })
        }),
        refs: fields.take("refs").map(|node| reader.texts(node, "`refs`")),
        force: fields
            .take("force")
            .and_then(|node| reader.boolean(node, "`force`")),
    }
}
