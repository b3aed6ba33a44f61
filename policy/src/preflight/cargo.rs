//! Cargo: sources of Cargo.lock and Cargo.toml, registries and tokens of its configuration.
use super::address::Address;
use super::finds::{Find, Finds, Spot, variables};
use super::tree::Tree;

const WHAT: &str = "cargo crates";
const ECOSYSTEM: &str = "cargo";
/// Whether this is a file of cargo's.
pub(super) fn reads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(
        name,
        "Cargo.toml" | "Cargo.lock" | "rust-toolchain.toml" | "rust-toolchain"
    ) || path.ends_with(".cargo/config.toml")
        || path.ends_with(".cargo/config")
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    if finds.name().starts_with("rust-toolchain") {
        finds.registries(Find::likely("a rust toolchain", ECOSYSTEM, Spot::Line(1)));
        return;
    }
    match Tree::toml(finds.text) {
        Err(why) => finds.unreadable(&why),
        Ok(tree) => match finds.name() {
            "Cargo.lock" => lock(&tree, finds),
            "Cargo.toml" => manifest(&tree, finds),
            _ => configuration(&tree, finds),
        },
    }
}

fn sure(spot: Spot<'_>) -> Find<'_> {
    Find::sure(WHAT, ECOSYSTEM, spot)
}

fn lock(tree: &Tree, finds: &mut Finds<'_>) {
    for package in tree.at(&["package"]).into_iter().flat_map(Tree::items) {
        let Some(source) = package.at(&["source"]) else {
            continue;
        };
        let text = source.text().unwrap_or_default();
        if text.starts_with("git+") {
            finds.repository(text, sure(source.spot()));
        } else if is_default(text) {
            finds.registries(sure(source.spot()));
        } else {
            finds.address(text, sure(source.spot()));
        }
    }
}

/// Cargo writes the address of the index of old, a git repository of Rust's own, for crates of the default registry.
fn is_default(source: &str) -> bool {
    Address::parse(source)
        .is_ok_and(|address| address.path.starts_with("/rust-lang/") && address.path.ends_with("-index"))
}

fn manifest(tree: &Tree, finds: &mut Finds<'_>) {
    let targets = tree.at(&["target"]).into_iter().flat_map(Tree::entries);
    let patches = tree.at(&["patch"]).into_iter().flat_map(Tree::entries);
    let workspace = tree.at(&["workspace"]);
    for part in [Some(tree), workspace]
        .into_iter()
        .flatten()
        .chain(targets.map(|(_, part)| part))
    {
        for key in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (_, dependency) in part.at(&[key]).into_iter().flat_map(Tree::entries) {
                depend(dependency, finds);
            }
        }
    }
    for (_, patch) in patches {
        for (_, dependency) in patch.entries() {
            depend(dependency, finds);
        }
    }
}

fn depend(dependency: &Tree, finds: &mut Finds<'_>) {
    if let Some(git) = dependency.at(&["git"]) {
        finds.repository(git.text().unwrap_or_default(), sure(git.spot()));
    } else if let Some(index) = dependency.at(&["registry-index"]) {
        finds.address(index.text().unwrap_or_default(), sure(index.spot()));
    } else if ["path", "workspace", "registry"]
        .iter()
        .all(|key| dependency.at(&[key]).is_none())
    {
        finds.registries(sure(dependency.spot()));
    }
}

/// `registries`, `source`, tokens by variables (Cargo's reference, "Configuration").
fn configuration(tree: &Tree, finds: &mut Finds<'_>) {
    for (name, registry) in tree.at(&["registries"]).into_iter().flat_map(Tree::entries) {
        let index = registry.at(&["index"]);
        let Some(index) = index else { continue };
        let text = index.text().unwrap_or_default();
        finds.address(text, sure(index.spot()));
        let site = Address::parse(text).ok().map(|address| address.site);
        let find = Find::likely("a log-in", ECOSYSTEM, index.spot());
        let token = registry.text_at(&["token"]).map(|token| variables(token).pop());
        match token {
            Some(variable) => finds.credential(variable, site, find),
            None if registry.at(&["credential-provider"]).is_some() => {
                let name = name.to_ascii_uppercase().replace('-', "_");
                finds.credential(Some(format!("CARGO_REGISTRIES_{name}_TOKEN")), site, find);
            }
            None => {}
        }
    }
    for (_, source) in tree.at(&["source"]).into_iter().flat_map(Tree::entries) {
        if let Some(registry) = source.at(&["registry"]) {
            finds.address(registry.text().unwrap_or_default(), sure(registry.spot()));
        }
        if let Some(git) = source.at(&["git"]) {
            finds.repository(git.text().unwrap_or_default(), sure(git.spot()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;

    #[test]
    fn lock_files_name_their_sources() {
        let text = r#"
version = 4
[[package]]
name = "a"
source = "registry+https://git.test/rust-lang/the-index"
[[package]]
name = "b"
source = "sparse+https://own.test/index/"
[[package]]
name = "c"
source = "git+https://git.test/acme/c?branch=main#0123"
[[package]]
name = "d"
"#;
        assert_eq!(
            told("Cargo.lock", text),
            [
                "sure cargo crates from the registries of `cargo` @5",
                "sure cargo crates: GET https://own.test/index/ @8",
                "sure cargo crates: clone https://git.test/acme/c @11",
            ]
        );
    }

    #[test]
    fn manifests_name_repositories_and_registries() {
        let text = r#"
[dependencies]
serde = "1"
own = { path = "../own" }
tool = { git = "https://git.test/acme/tool.git", rev = "1" }
[target.'cfg(unix)'.dependencies]
nix = { version = "1" }
[patch.crates-io]
serde = { git = "https://git.test/acme/serde" }
"#;
        assert_eq!(
            told("a/Cargo.toml", text),
            [
                "sure cargo crates from the registries of `cargo` @3",
                "sure cargo crates: clone https://git.test/acme/tool.git @5",
                "sure cargo crates: clone https://git.test/acme/serde @9",
            ]
        );
    }

    #[test]
    fn the_configuration_names_registries_and_log_ins() {
        let text = r#"
[registries.acme]
index = "sparse+https://crates.acme.test/index/"
credential-provider = "cargo:token"
[source.crates-io]
replace-with = "mirror"
[source.mirror]
registry = "sparse+https://mirror.test/"
"#;
        assert_eq!(
            told(".cargo/config.toml", text),
            [
                "sure cargo crates: GET https://crates.acme.test/index/ @3",
                "likely a log-in in `CARGO_REGISTRIES_ACME_TOKEN` for https://crates.acme.test @3",
                "sure cargo crates: GET https://mirror.test/ @8",
            ]
        );
    }
}
