//! Ruby, PHP, Terraform, and managers of tools: few files each.
use super::finds::{Find, Finds, Spot, numbered};
use super::shell::urls;
use super::tree::Tree;

/// Whether this is one of those files.
pub(super) fn reads(name: &str) -> bool {
    matches!(
        name,
        "Gemfile"
            | "Gemfile.lock"
            | "composer.json"
            | "composer.lock"
            | ".tool-versions"
            | "mise.toml"
            | ".mise.toml"
            | ".nvmrc"
            | ".node-version"
            | ".python-version"
            | ".terraform.lock.hcl"
    ) || name.ends_with(".tf")
        || name.ends_with(".gemspec")
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    match finds.name() {
        "Gemfile.lock" => gem_lock(finds),
        "composer.json" | "composer.lock" => match Tree::json(finds.text) {
            Ok(tree) => composer(&tree, finds),
            Err(why) => finds.unreadable(&why),
        },
        "mise.toml" | ".mise.toml" => match Tree::toml(finds.text) {
            Ok(tree) => {
                for (name, tool) in tree.at(&["tools"]).into_iter().flat_map(Tree::entries) {
                    version(name, tool.spot(), finds);
                }
            }
            Err(why) => finds.unreadable(&why),
        },
        ".tool-versions" => {
            for (number, line) in numbered(finds.text) {
                version(
                    line.split_whitespace().next().unwrap_or_default(),
                    Spot::Line(number),
                    finds,
                );
            }
        }
        ".nvmrc" | ".node-version" => version("node", Spot::Line(1), finds),
        ".python-version" => version("python", Spot::Line(1), finds),
        name if name.ends_with(".tf") || name.ends_with(".hcl") => terraform(finds),
        _ => gemfile(finds),
    }
}

/// Gemfiles are programs: `source`, `gem ... git:`, `gem`.
fn gemfile(finds: &mut Finds<'_>) {
    for (number, line) in numbered(finds.text) {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let find = Find::sure("ruby gems", "rubygems", Spot::Line(number));
        if line.starts_with("source") || line.starts_with("git ") || line.starts_with("git(") {
            for url in urls(line) {
                match line.starts_with("git") {
                    true => finds.repository(url, find),
                    false => finds.address(url, find),
                }
            }
        } else if line.starts_with("gem ") || line.starts_with("gem(") {
            let by_address = ["git:", ":git", "path:", ":path"]
                .iter()
                .any(|key| line.contains(key));
            for url in urls(line) {
                finds.repository(url, find);
            }
            if line.contains("github:") || line.contains(":github") {
                finds.registries(Find::sure(
                    "a git repository by its short name",
                    "github",
                    Spot::Line(number),
                ));
            } else if !by_address {
                finds.registries(find);
            }
        } else if line.contains("add_dependency") || line.contains("add_development_dependency") {
            finds.registries(find);
        }
    }
}

/// `remote:` under `GEM` and `GIT`.
fn gem_lock(finds: &mut Finds<'_>) {
    let mut section = "";
    for (number, line) in numbered(finds.text) {
        if !line.starts_with(' ') {
            section = line.trim();
        } else if let Some(place) = line.trim().strip_prefix("remote:") {
            let find = Find::sure("ruby gems", "rubygems", Spot::Line(number));
            match section {
                "GIT" => finds.repository(place, find),
                _ => finds.address(place, find),
            }
        }
    }
}

fn composer(tree: &Tree, finds: &mut Finds<'_>) {
    let find = |spot| Find::sure("php packages", "php", spot);
    for part in tree.at(&["repositories"]).into_iter().flat_map(|list| {
        let named = list.entries().map(|(_, part)| part).filter(|part| part.is_map());
        named.chain(list.items()).collect::<Vec<_>>()
    }) {
        let Some(url) = part.at(&["url"]) else { continue };
        let text = url.text().unwrap_or_default();
        match part.text_at(&["type"]) {
            Some("vcs" | "git" | "github" | "gitlab") => finds.repository(text, find(url.spot())),
            _ => finds.address(text, find(url.spot())),
        }
    }
    for section in ["packages", "packages-dev"] {
        for package in tree.at(&[section]).into_iter().flat_map(Tree::items) {
            if let Some(url) = package.at(&["dist", "url"]).or(package.at(&["source", "url"])) {
                finds.address(url.text().unwrap_or_default(), find(url.spot()));
            }
        }
    }
    // `vendor/package`; the others are extensions of php itself.
    let required = ["require", "require-dev"]
        .iter()
        .filter_map(|key| tree.at(&[key]))
        .flat_map(Tree::entries)
        .find(|(name, _)| name.contains('/'));
    if let Some((name, _)) = required {
        finds.registries(find(Spot::Text(name)));
    }
}

/// A tool of asdf or mise.
fn version(name: &str, spot: Spot<'_>, finds: &mut Finds<'_>) {
    const TOOLS: &[(&[&str], &str, &str)] = &[
        (
            &["node", "nodejs", "pnpm", "yarn", "bun"],
            "a version of node",
            "node",
        ),
        (&["python", "uv", "poetry"], "a version of python", "python"),
        (&["go", "golang"], "a go toolchain", "go"),
        (&["rust"], "a rust toolchain", "cargo"),
        (&["ruby"], "a version of ruby", "rubygems"),
        (
            &["java", "maven", "gradle", "kotlin"],
            "a version of java",
            "maven",
        ),
        (&["php", "composer"], "a version of php", "php"),
        (&["terraform", "opentofu"], "a version of terraform", "terraform"),
    ];
    if name.is_empty() || name.starts_with('#') {
        return;
    }
    let known = TOOLS.iter().find(|(names, ..)| names.contains(&name));
    let (what, ecosystem) = known.map_or(("a tool", "github"), |(_, what, ecosystem)| (*what, *ecosystem));
    finds.registries(Find::likely(what, ecosystem, spot));
}

/// `required_providers`, `source` of modules and providers.
fn terraform(finds: &mut Finds<'_>) {
    let mut registry = false;
    for (number, line) in numbered(finds.text) {
        let line = line.trim();
        if line.starts_with(['#', '/']) {
            continue;
        }
        let spot = Spot::Line(number);
        let providers = line.starts_with("required_providers") || line.starts_with("provider \"registry");
        if providers && !registry {
            registry = true;
            finds.registries(Find::likely("providers of terraform", "terraform", spot));
        }
        if let Some((key, value)) = line.split_once('=')
            && key.trim() == "source"
        {
            let value = value.trim().trim_matches('"');
            let find = Find::likely("modules of terraform", "terraform", spot);
            match value.strip_prefix("git::") {
                Some(place) => finds.repository(
                    place
                        .replacen("//", "\0", 1)
                        .split("//")
                        .next()
                        .unwrap_or_default()
                        .replace('\0', "//")
                        .as_str(),
                    find,
                ),
                None => finds.address(value, find),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;

    #[test]
    fn gems_come_from_sources_and_repositories() {
        let text = "source \"https://gems.test\"\ngem \"rails\", \"~> 8\"\ngem \"own\", git: \"https://git.test/acme/own.git\"\ngem \"local\", path: \"../local\"\n";
        assert_eq!(
            told("Gemfile", text),
            [
                "sure ruby gems: GET https://gems.test/ @1",
                "sure ruby gems from the registries of `rubygems` @2",
                "sure ruby gems: clone https://git.test/acme/own.git @3",
            ]
        );
        let lock = "GIT\n  remote: https://git.test/acme/own.git\n  revision: 1\nGEM\n  remote: https://gems.test/\n  specs:\n";
        assert_eq!(
            told("Gemfile.lock", lock),
            [
                "sure ruby gems: clone https://git.test/acme/own.git @2",
                "sure ruby gems: GET https://gems.test/ @5",
            ]
        );
    }

    #[test]
    fn php_packages_come_from_repositories_and_archives() {
        let text = r#"{"require": {"php": ">=8", "acme/lib": "^1"},
"repositories": [{"type": "vcs", "url": "https://git.test/acme/lib"}, {"type": "composer", "url": "https://php.test"}]}"#;
        assert_eq!(
            told("composer.json", text),
            [
                "sure php packages: clone https://git.test/acme/lib @2",
                "sure php packages: GET https://php.test/ @2",
                "sure php packages from the registries of `php` @1",
            ]
        );
    }

    #[test]
    fn tools_and_providers_are_likely() {
        assert_eq!(
            told(".tool-versions", "nodejs 22\njq 1.7\n"),
            [
                "likely a version of node from the registries of `node` @1",
                "likely a tool from the registries of `github` @2",
            ]
        );
        let text = "terraform {\n  required_providers {\n    x = { source = \"a/x\" }\n  }\n}\nmodule \"m\" {\n  source = \"git::https://git.test/acme/m.git//sub?ref=1\"\n}\n";
        assert_eq!(
            told("main.tf", text),
            [
                "likely providers of terraform from the registries of `terraform` @2",
                "likely modules of terraform: clone https://git.test/acme/m.git @7",
            ]
        );
    }
}
