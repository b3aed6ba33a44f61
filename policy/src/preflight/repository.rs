//! The repository itself: submodules, git lfs, hooks of pre-commit, workflows, scripts.
use super::containers::image;
use super::finds::{Find, Finds, Spot, numbered};
use super::need::Certainty;
use super::shell::{self, Setting, System};
use super::tree::Tree;

/// Where actions of workflows come from.
const ACTIONS: &str = "github";
/// No preset says where large files are: they are wherever the repository came from.
const LARGE_FILES: &str = "git-lfs";

/// Whether this is one of those files.
pub(super) fn reads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(
        name,
        ".gitmodules" | ".lfsconfig" | ".gitattributes" | ".pre-commit-config.yaml"
    ) || is_workflow(path)
        || is_script(name)
}

fn is_workflow(path: &str) -> bool {
    let yaml = path.ends_with(".yml") || path.ends_with(".yaml");
    yaml && [
        ".github/workflows/",
        ".github/actions/",
        ".gitea/workflows/",
        ".forgejo/workflows/",
    ]
    .iter()
    .any(|folder| path.starts_with(folder))
}

fn is_script(name: &str) -> bool {
    matches!(
        name,
        "Makefile" | "makefile" | "GNUmakefile" | "justfile" | "Justfile" | "Procfile"
    ) || name.ends_with(".sh")
        || name.ends_with(".bash")
        || name.ends_with(".mk")
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    let name = finds.name();
    if is_script(name) {
        script(finds);
        return;
    }
    let read: fn(&Tree, &mut Finds<'_>) = match name {
        ".gitmodules" | ".lfsconfig" => return git_configuration(finds),
        ".gitattributes" => return attributes(finds),
        ".pre-commit-config.yaml" => hooks,
        _ => workflow,
    };
    match Tree::yaml(finds.text) {
        Ok(tree) => read(&tree, finds),
        Err(why) => finds.unreadable(&why),
    }
}

/// `url = ...` (git-config); relative addresses are on the repository's own host.
fn git_configuration(finds: &mut Finds<'_>) {
    let lfs = finds.name() == ".lfsconfig";
    for (number, line) in numbered(finds.text) {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let spot = Spot::Line(number);
        match (key.trim(), lfs) {
            ("url", false) => finds.repository(value.trim(), Find::sure("a submodule", "git", spot)),
            ("url" | "pushurl", true) => {
                finds.address(value.trim(), Find::sure("large files of git", "git", spot))
            }
            _ => {}
        }
    }
}

fn attributes(finds: &mut Finds<'_>) {
    let used = numbered(finds.text).find(|(_, line)| !line.starts_with('#') && line.contains("filter=lfs"));
    if let Some((number, _)) = used {
        finds.registries(Find::likely(
            "large files of git",
            LARGE_FILES,
            Spot::Line(number),
        ));
    }
}

fn hooks(tree: &Tree, finds: &mut Finds<'_>) {
    for repo in tree.at(&["repos"]).into_iter().flat_map(Tree::items) {
        if let Some(place) = repo.at(&["repo"]) {
            let text = place.text().unwrap_or_default();
            finds.repository(text, Find::sure("hooks of pre-commit", "git", place.spot()));
        }
    }
}

/// What workflows use, run and refer to: an agent that is to make them pass will need it.
fn workflow(tree: &Tree, finds: &mut Finds<'_>) {
    const INSTALLERS: &[(&str, &str, &str)] = &[
        ("setup-node", "a version of node", "node"),
        ("setup-python", "a version of python", "python"),
        ("setup-uv", "python packages", "python"),
        ("setup-go", "a go toolchain", "go"),
        ("setup-java", "java packages", "maven"),
        ("rust-toolchain", "a rust toolchain", "cargo"),
        ("setup-ruby", "ruby gems", "rubygems"),
        ("setup-php", "php packages", "php"),
    ];
    tree.each_text("", &mut |key, item| {
        let text = item.text().unwrap_or_default();
        match key {
            "uses" if text.starts_with("docker://") => {
                image(
                    text,
                    Find::likely("container images", "containers", item.spot()),
                    finds,
                );
            }
            "uses" if !text.starts_with('.') && text.contains('/') => {
                finds.registries(Find::likely("actions of workflows", ACTIONS, item.spot()));
                let known = INSTALLERS
                    .iter()
                    .find(|(name, ..)| text.contains(&format!("/{name}")));
                if let Some((_, what, ecosystem)) = known {
                    finds.registries(Find::likely(what, ecosystem, item.spot()));
                }
            }
            "container" | "image" => image(
                text,
                Find::likely("container images", "containers", item.spot()),
                finds,
            ),
            _ => {}
        }
    });
    for (number, line) in numbered(finds.text) {
        for (at, word) in line.match_indices("secrets.") {
            let rest = line.get(at + word.len()..).unwrap_or_default();
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            if !name.is_empty() && name != "inherit" {
                let find = Find::likely("a secret", "environment", Spot::Line(number));
                finds.credential(Some(name.to_owned()), None, find);
            }
        }
    }
    runs(tree, finds);
}

/// Commands under `run`, each by its line.
fn runs(tree: &Tree, finds: &mut Finds<'_>) {
    let mut commands = Vec::new();
    tree.each_text("", &mut |key, item| {
        if let ("run", Some(text), Spot::Line(line)) = (key, item.text(), item.spot()) {
            commands.push((text.to_owned(), line));
        }
    });
    for (text, first) in commands {
        for (number, line) in shell::joined(&text) {
            let number = first.saturating_add(number - 1);
            shell::line(&line, number, likely("a download of a workflow"), finds);
        }
    }
}

fn script(finds: &mut Finds<'_>) {
    for (number, line) in shell::joined(finds.text) {
        shell::line(&line, number, likely("a download of a script"), finds);
    }
}

fn likely(what: &'static str) -> Setting {
    Setting {
        what,
        ecosystem: "script",
        certainty: Certainty::Likely,
        system: System::Debian,
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;

    #[test]
    fn submodules_and_large_files_are_named() {
        let modules = "[submodule \"a\"]\n\tpath = a\n\turl = https://git.test/acme/a.git\n[submodule \"b\"]\n\turl = git@git.test:acme/b.git\n[submodule \"c\"]\n\turl = ../c.git\n";
        assert_eq!(
            told(".gitmodules", modules),
            [
                "sure a submodule: clone https://git.test/acme/a.git @3",
                "sure a submodule: clone ssh://git.test/acme/b.git @5",
            ]
        );
        assert_eq!(
            told(".lfsconfig", "[lfs]\n\turl = https://lfs.test/acme\n"),
            ["sure large files of git: GET https://lfs.test/acme @2"]
        );
        assert_eq!(
            told(".gitattributes", "*.bin filter=lfs diff=lfs\n"),
            ["likely large files of git from the registries of `git-lfs` @1"]
        );
    }

    #[test]
    fn hooks_and_workflows_are_named() {
        let hooks = "repos:\n  - repo: https://git.test/hooks/a\n    rev: v1\n    hooks: [{id: a}]\n  - repo: local\n    hooks: []\n";
        assert_eq!(
            told(".pre-commit-config.yaml", hooks),
            ["sure hooks of pre-commit: clone https://git.test/hooks/a @2"]
        );
        let workflow = "on: push\njobs:\n  test:\n    container: reg.test/ci/image:1\n    steps:\n      - uses: actions/setup-node@v5\n      - run: npm ci\n      - run: |\n          curl https://files.test/x\n          go test ./...\n        env:\n          T: ${{ secrets.DEPLOY_KEY }}\n";
        assert_eq!(
            told(".github/workflows/ci.yml", workflow),
            [
                "likely container images: GET https://reg.test/v2/ci/image/manifests/ @4",
                "likely actions of workflows from the registries of `github` @6",
                "likely a version of node from the registries of `node` @6",
                "likely a secret in `DEPLOY_KEY` @12",
                "likely npm packages from the registries of `npm` @7",
                "likely a download of a workflow: GET https://files.test/x @9",
                "likely go modules from the registries of `go` @10",
            ]
        );
    }

    #[test]
    fn scripts_are_looked_through() {
        let text = "#!/bin/sh\n# https://comment.test\necho see https://docs.test\nURL=https://set.test/x\nsudo apt-get install -y jq\npython3 -m pip install flask\nwget -q \\\n  https://files.test/a.tgz\n";
        assert_eq!(
            told("scripts/setup.sh", text),
            [
                "likely a download of a script: GET https://set.test/x @4",
                "likely debian packages from the registries of `debian` @5",
                "likely python packages from the registries of `python` @6",
                "likely a download of a script: GET https://files.test/a.tgz @7",
            ]
        );
        assert_eq!(
            told("Makefile", "install:\n\t@npm ci\n"),
            ["likely npm packages from the registries of `npm` @2"]
        );
    }
}
