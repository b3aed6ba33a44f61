//! Python: requirements, pyproject.toml, Pipfile, lock files of poetry, uv and pdm, setup.cfg, pip.conf.
#[cfg(test)]
mod tests;

use super::finds::{Find, Finds, Spot, numbered};
use super::tree::Tree;

const WHAT: &str = "python packages";
const ECOSYSTEM: &str = "python";

/// Whether this is a file of pip's and its relatives.
pub(super) fn reads(name: &str) -> bool {
    is_requirements(name) || is_configuration(name) || is_toml(name) || name == "Pipfile.lock"
}

fn is_requirements(name: &str) -> bool {
    (name.starts_with("requirements") || name.ends_with("requirements.txt") || name == "constraints.txt")
        && (name.ends_with(".txt") || name.ends_with(".in"))
}

fn is_configuration(name: &str) -> bool {
    matches!(name, "setup.cfg" | "pip.conf" | "pip.ini")
}

fn is_toml(name: &str) -> bool {
    matches!(
        name,
        "pyproject.toml" | "Pipfile" | "poetry.lock" | "uv.lock" | "pdm.lock" | "uv.toml" | "pylock.toml"
    )
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    let name = finds.name();
    if is_requirements(name) {
        requirements(finds);
    } else if is_configuration(name) {
        configuration(finds);
    } else if name == "Pipfile.lock" {
        match Tree::json(finds.text) {
            Ok(tree) => pipfile_lock(&tree, finds),
            Err(why) => finds.unreadable(&why),
        }
    } else {
        match Tree::toml(finds.text) {
            Ok(tree) => toml(&tree, finds),
            Err(why) => finds.unreadable(&why),
        }
    }
}

fn sure(spot: Spot<'_>) -> Find<'_> {
    Find::sure(WHAT, ECOSYSTEM, spot)
}

/// pip's requirements file format.
fn requirements(finds: &mut Finds<'_>) {
    let mut packages = None;
    let mut replaced = false;
    for (number, line) in numbered(finds.text) {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let find = sure(Spot::Line(number));
        if let Some(value) = option(line, &["-i", "--index-url"]) {
            replaced = true;
            finds.address(value, find);
        } else if let Some(value) = option(line, &["--extra-index-url", "-f", "--find-links"]) {
            finds.address(value, find);
        } else if line.starts_with("--no-index") {
            replaced = true;
        } else if let Some(value) = option(line, &["-e", "--editable"]) {
            requirement(value, number, finds);
        } else if !line.starts_with('-') && !requirement(line, number, finds) {
            packages = packages.or(Some(number));
        }
    }
    if let Some(number) = packages.filter(|_| !replaced) {
        finds.registries(sure(Spot::Line(number)));
    }
}

fn option<'t>(line: &'t str, names: &[&str]) -> Option<&'t str> {
    names.iter().find_map(|name| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '=', '\t'])
            .then(|| rest.trim_start_matches(['=', ' ', '\t']).trim())
    })
}

/// A requirement (PEP 508); `true` where it has an address of its own or is a path.
fn requirement(text: &str, number: u32, finds: &mut Finds<'_>) -> bool {
    let target = match text.split_once('@') {
        Some((name, target)) if !name.contains(['/', ':']) => target.trim(),
        _ => text,
    };
    if target.contains("://") {
        let address = target.split([' ', ';']).next().unwrap_or_default();
        finds.address(address, sure(Spot::Line(number)));
        return true;
    }
    text.starts_with(['.', '/'])
}

/// A requirement in a list of one of the formats below.
fn listed(tree: &Tree, finds: &mut Finds<'_>) -> bool {
    let mut plain = false;
    tree.each_text("", &mut |_, item| {
        if let Some(text) = item.text() {
            let number = match item.spot() {
                Spot::Line(line) => line,
                Spot::Text(_) => 1,
            };
            plain |= !requirement(text, number, finds);
        }
    });
    plain
}

/// `setup.cfg` and `pip.conf` (ini).
fn configuration(finds: &mut Finds<'_>) {
    const KEYS: &[&str] = &[
        "index-url",
        "extra-index-url",
        "find-links",
        "dependency_links",
        "index_url",
    ];
    let mut key = "";
    for (number, line) in numbered(finds.text) {
        if line.trim().is_empty() || line.starts_with(['#', ';', '[']) {
            continue;
        }
        let value = match line.split_once('=') {
            Some((name, value)) if !line.starts_with([' ', '\t']) => {
                key = name.trim();
                value
            }
            _ => line,
        };
        let requires = matches!(key, "install_requires" | "setup_requires" | "tests_require");
        let value = value.trim();
        if KEYS.contains(&key) {
            for address in value.split_whitespace() {
                finds.address(address, sure(Spot::Line(number)));
            }
        } else if requires && !value.is_empty() && !requirement(value, number, finds) {
            finds.registries(sure(Spot::Line(number)));
        }
    }
}

fn pipfile_lock(tree: &Tree, finds: &mut Finds<'_>) {
    sources(tree.at(&["_meta", "sources"]), finds);
    for section in ["default", "develop"] {
        for (_, package) in tree.at(&[section]).into_iter().flat_map(Tree::entries) {
            pinned(package, finds);
        }
    }
}

/// Tables with `url`.
fn sources(tree: Option<&Tree>, finds: &mut Finds<'_>) {
    for source in tree.into_iter().flat_map(Tree::items) {
        if let Some(url) = source.at(&["url"])
            && let Some(text) = url.text()
        {
            finds.address(text, sure(url.spot()));
        }
    }
}

/// A package by address: `{git = ...}`, `{url = ...}`, `{file = ...}`.
fn pinned(package: &Tree, finds: &mut Finds<'_>) {
    for key in ["git", "url", "file"] {
        let Some((value, text)) = package.at(&[key]).and_then(|it| Some((it, it.text()?))) else {
            continue;
        };
        match key {
            "git" => finds.repository(text, sure(value.spot())),
            _ => finds.address(text, sure(value.spot())),
        }
    }
}

fn toml(tree: &Tree, finds: &mut Finds<'_>) {
    match finds.name() {
        "pyproject.toml" => pyproject(tree, finds),
        "uv.toml" => {
            // Only a project's own manifest says what is needed from the default.
            let _replaced = indices(tree, finds);
        }
        "Pipfile" => {
            sources(tree.at(&["source"]), finds);
            for section in ["packages", "dev-packages"] {
                for (_, package) in tree.at(&[section]).into_iter().flat_map(Tree::entries) {
                    pinned(package, finds);
                }
            }
        }
        _ => lock(tree, finds),
    }
}

fn pyproject(tree: &Tree, finds: &mut Finds<'_>) {
    let own_index = tool_indices(tree, finds);
    let mut plain = None;
    for keys in [
        &["project", "dependencies"][..],
        &["project", "optional-dependencies"],
        &["dependency-groups"],
        &["build-system", "requires"],
        &["tool", "pdm", "dev-dependencies"],
    ] {
        if let Some(list) = tree.at(keys).filter(|list| !list.is_empty())
            && listed(list, finds)
        {
            plain = plain.or(Some(list));
        }
    }
    for keys in [
        &["tool", "poetry", "dependencies"][..],
        &["tool", "poetry", "dev-dependencies"],
        &["tool", "uv", "sources"],
    ] {
        for (name, package) in tree.at(keys).into_iter().flat_map(Tree::entries) {
            for one in package.items() {
                pinned(one, finds);
            }
            let by_place = ["git", "url", "path", "file", "workspace"];
            if name != "python"
                && keys.get(1) == Some(&"poetry")
                && by_place.iter().all(|key| package.at(&[key]).is_none())
            {
                plain = plain.or(Some(package));
            }
        }
    }
    for (_, group) in tree
        .at(&["tool", "poetry", "group"])
        .into_iter()
        .flat_map(Tree::entries)
    {
        for (_, package) in group.at(&["dependencies"]).into_iter().flat_map(Tree::entries) {
            pinned(package, finds);
        }
    }
    if let Some(list) = plain.filter(|_| !own_index) {
        finds.registries(sure(list.spot()));
    }
}

/// Indices that the tools are configured with; whether one of them takes the default's place.
fn tool_indices(tree: &Tree, finds: &mut Finds<'_>) -> bool {
    let poetry = tree.at(&["tool", "poetry", "source"]);
    let pdm = tree.at(&["tool", "pdm", "source"]);
    sources(poetry, finds);
    sources(pdm, finds);
    let mut replaced = false;
    for source in poetry.into_iter().flat_map(Tree::items) {
        replaced |= matches!(source.text_at(&["priority"]), None | Some("primary" | "default"));
    }
    for source in pdm.into_iter().flat_map(Tree::items) {
        replaced |= source.text_at(&["name"]) == Some("pypi");
    }
    replaced |= tree.at(&["tool", "uv"]).is_some_and(|uv| indices(uv, finds));
    replaced
}

/// uv's `index`, `index-url`, `extra-index-url`, `find-links`; whether the default is replaced.
fn indices(uv: &Tree, finds: &mut Finds<'_>) -> bool {
    sources(uv.at(&["index"]), finds);
    for key in ["index-url", "extra-index-url", "find-links", "default-index"] {
        for item in uv.at(&[key]).into_iter().flat_map(Tree::items) {
            finds.address(item.text().unwrap_or_default(), sure(item.spot()));
        }
    }
    // `default = true` is no text, hence told by its presence.
    let default = |index: &Tree| index.at(&["default"]).is_some();
    uv.at(&["index-url"]).is_some()
        || uv
            .at(&["index"])
            .is_some_and(|list| list.items().iter().any(default))
}

/// Lock files: each package with its source. A package without one comes from the default index.
fn lock(tree: &Tree, finds: &mut Finds<'_>) {
    const KEYS: &[&str] = &["url", "git", "registry", "index"];
    for key in ["package", "packages"] {
        for package in tree.at(&[key]).into_iter().flat_map(Tree::items) {
            let mut placed = false;
            package.each_text("", &mut |key, item| {
                let Some(text) = item.text() else { return };
                if KEYS.contains(&key) && text.contains("://") {
                    placed = true;
                    let git = key == "git" || package.text_at(&["source", "type"]) == Some("git");
                    match git && key != "index" {
                        true => finds.repository(text, sure(item.spot())),
                        false => finds.address(text, sure(item.spot())),
                    }
                }
            });
            let local = ["virtual", "editable", "directory", "path"]
                .iter()
                .any(|kind| package.at(&["source", kind]).is_some() || package.at(&[kind]).is_some());
            if !placed && !local && package.at(&["name"]).is_some() {
                finds.registries(sure(package.spot()));
            }
        }
    }
}
