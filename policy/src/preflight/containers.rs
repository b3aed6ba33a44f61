//! Container images: Dockerfiles with the commands they run, compose files, development containers.
use super::finds::{Find, Finds, Spot, numbered, variables};
use super::need::Certainty;
use super::shell::{self, Setting, System};
use super::tree::Tree;
use std::collections::HashMap;

const WHAT: &str = "container images";
const ECOSYSTEM: &str = "containers";

/// Whether this is one of those files.
pub(super) fn reads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    is_dockerfile(name) || is_compose(name) || is_devcontainer(name)
}

fn is_dockerfile(name: &str) -> bool {
    ["Dockerfile", "Containerfile"]
        .iter()
        .any(|stem| name == *stem || name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.')))
        || name.ends_with(".Dockerfile")
        || name.ends_with(".dockerfile")
}

fn is_compose(name: &str) -> bool {
    let stem = name.strip_suffix(".yml").or_else(|| name.strip_suffix(".yaml"));
    stem.is_some_and(|stem| {
        ["compose", "docker-compose"].iter().any(|begin| {
            stem == *begin
                || stem
                    .strip_prefix(begin)
                    .is_some_and(|rest| rest.starts_with(['.', '-']))
        })
    })
}

fn is_devcontainer(name: &str) -> bool {
    matches!(name, "devcontainer.json" | ".devcontainer.json")
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    let name = finds.name();
    if is_dockerfile(name) {
        dockerfile(finds);
        return;
    }
    let (tree, read): (_, fn(&Tree, &mut Finds<'_>)) = match is_compose(name) {
        true => (Tree::yaml(finds.text), compose),
        false => (Tree::json_with_comments(finds.text), devcontainer),
    };
    match tree {
        Ok(tree) => read(&tree, finds),
        Err(why) => finds.unreadable(&why),
    }
}

/// An image's reference: `host[:port]/name`, else the default registry's (distribution's reference grammar).
pub(super) fn image(text: &str, find: Find<'_>, finds: &mut Finds<'_>) {
    let text = text.trim().trim_start_matches("docker://");
    if text.is_empty() || text == "scratch" {
        return;
    }
    match text.split_once('/') {
        Some((host, name)) if host.contains(['.', ':', '$']) => {
            let name = name.split(['@', ':']).next().unwrap_or_default();
            finds.address(&format!("https://{host}/v2/{name}/manifests/"), find);
        }
        _ => finds.registries(find),
    }
}

#[derive(Default)]
struct Stages {
    names: Vec<String>,
    arguments: HashMap<String, String>,
    system: Option<System>,
}

fn dockerfile(finds: &mut Finds<'_>) {
    let mut stages = Stages::default();
    for (number, line) in shell::joined(finds.text) {
        let line = line.trim();
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "ARG" => stages.argument(rest),
            "FROM" => stages.from(rest, number, finds),
            "COPY" => {
                let from = rest
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix("--from="));
                if let Some(from) = from {
                    stages.image(from, number, finds);
                }
            }
            "ADD" => {
                for word in rest.split_whitespace().flat_map(shell::urls) {
                    finds.address(
                        &stages.fill(word),
                        Find::sure("a file of an image", ECOSYSTEM, Spot::Line(number)),
                    );
                }
            }
            "RUN" => {
                let setting = Setting {
                    what: "a download of an image",
                    ecosystem: ECOSYSTEM,
                    certainty: Certainty::Sure,
                    system: stages.system.unwrap_or(System::Debian),
                };
                let command: Vec<&str> = rest
                    .split_whitespace()
                    .skip_while(|word| word.starts_with("--"))
                    .collect();
                shell::line(&stages.fill(&command.join(" ")), number, setting, finds);
                for name in rest.split("id=").skip(1) {
                    let name = name.split([',', ' ']).next().unwrap_or_default();
                    if rest.contains("type=secret") {
                        super::secrets::variable(&name.to_ascii_uppercase(), number, finds);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Stages {
    fn argument(&mut self, rest: &str) {
        for word in rest.split_whitespace() {
            if let Some((name, value)) = word.split_once('=') {
                let value = value.trim_matches(['"', '\'']).to_owned();
                self.arguments.insert(name.to_owned(), value);
            }
        }
    }

    /// `FROM [--platform=...] IMAGE [AS NAME]`.
    fn from(&mut self, rest: &str, number: u32, finds: &mut Finds<'_>) {
        let words: Vec<&str> = rest
            .split_whitespace()
            .skip_while(|word| word.starts_with("--"))
            .collect();
        let Some(name) = words.first() else { return };
        let filled = self.fill(name);
        if filled.contains("ubuntu") {
            self.system = Some(System::Ubuntu);
        } else if !self.names.contains(&filled) {
            self.system = Some(System::Debian);
        }
        self.image(name, number, finds);
        if let [_, verb, stage, ..] = words.as_slice()
            && verb.eq_ignore_ascii_case("as")
        {
            self.names.push((*stage).to_owned());
        }
    }

    fn image(&self, name: &str, number: u32, finds: &mut Finds<'_>) {
        let filled = self.fill(name);
        let is_stage = self.names.iter().any(|stage| stage.eq_ignore_ascii_case(&filled));
        if !is_stage && !filled.bytes().all(|b| b.is_ascii_digit()) {
            image(&filled, Find::sure(WHAT, ECOSYSTEM, Spot::Line(number)), finds);
        }
    }

    /// With the defaults of `ARG` in the places of their names.
    fn fill(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for name in variables(text) {
            let inline = out
                .split_once(&format!("${{{name}:-"))
                .and_then(|(_, rest)| rest.split_once('}'))
                .map(|(default, _)| default.to_owned());
            let Some(value) = self.arguments.get(&name).cloned().or(inline.clone()) else {
                continue;
            };
            if let Some(default) = inline {
                out = out.replace(&format!("${{{name}:-{default}}}"), &value);
            }
            out = out.replace(&format!("${{{name}}}"), &value);
            out = out.replace(&format!("${name}"), &value);
        }
        out
    }
}

fn compose(tree: &Tree, finds: &mut Finds<'_>) {
    for (_, service) in tree.at(&["services"]).into_iter().flat_map(Tree::entries) {
        if let Some(name) = service.at(&["image"])
            && service.at(&["build"]).is_none()
        {
            let text = Stages::default().fill(name.text().unwrap_or_default());
            image(&text, Find::sure(WHAT, ECOSYSTEM, name.spot()), finds);
        }
    }
    for (number, line) in numbered(finds.text) {
        if !line.trim_start().starts_with('#') {
            for name in variables(line) {
                super::secrets::variable(&name, number, finds);
            }
        }
    }
}

/// The development container's metadata (containers.dev).
fn devcontainer(tree: &Tree, finds: &mut Finds<'_>) {
    if let Some(name) = tree.at(&["image"]) {
        image(
            name.text().unwrap_or_default(),
            Find::sure(WHAT, ECOSYSTEM, name.spot()),
            finds,
        );
    }
    for (feature, _) in tree.at(&["features"]).into_iter().flat_map(Tree::entries) {
        if !feature.starts_with('.') {
            image(
                feature,
                Find::sure(
                    "features of a development container",
                    ECOSYSTEM,
                    Spot::Text(feature),
                ),
                finds,
            );
        }
    }
    let setting = Setting {
        what: "a download of a development container",
        ecosystem: ECOSYSTEM,
        certainty: Certainty::Likely,
        system: System::Debian,
    };
    for key in [
        "onCreateCommand",
        "updateContentCommand",
        "postCreateCommand",
        "postStartCommand",
    ] {
        let Some(command) = tree.at(&[key]) else { continue };
        let keyed = format!("\"{key}\"");
        let number = finds
            .text
            .find(&keyed)
            .map_or(1, |at| super::finds::line_at(finds.text, at));
        command.each_text("", &mut |_, item| {
            shell::line(item.text().unwrap_or_default(), number, setting, finds);
        });
    }
    for (name, _) in tree.at(&["secrets"]).into_iter().flat_map(Tree::entries) {
        finds.credential(
            Some(name.to_owned()),
            None,
            Find::likely("a secret", "environment", Spot::Text(name)),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;

    #[test]
    fn a_dockerfile_names_images_packages_and_downloads() {
        let text = r#"ARG BASE=registry.test:5000/base/ubuntu:24.04
FROM --platform=linux/amd64 ${BASE} AS build
RUN apt-get update && \
    apt-get install -y curl
RUN curl -fsSL "https://files.test/tool.tgz" | tar xz && git clone https://git.test/acme/tool
ADD https://files.test/add.txt /
FROM node:22 AS web
RUN --mount=type=cache,target=/root/.npm npm ci && pip install -i https://index.test/simple x
FROM build
COPY --from=web /app /app
COPY --from=ghcr.test/tools/uv:1 /uv /uv
FROM scratch
"#;
        assert_eq!(
            told("docker/Dockerfile.dev", text),
            [
                "sure container images: GET https://registry.test:5000/v2/base/ubuntu/manifests/ @2",
                "sure ubuntu packages from the registries of `ubuntu` @3",
                "sure a download of an image: GET https://files.test/add.txt and 1 more path @5",
                "sure a git repository: clone https://git.test/acme/tool @5",
                "sure container images from the registries of `containers` @7",
                "sure npm packages from the registries of `npm` @8",
                "sure a download of an image: GET https://index.test/simple @8",
                "sure container images: GET https://ghcr.test/v2/tools/uv/manifests/ @11",
            ]
        );
    }

    #[test]
    fn compose_names_images_and_secrets() {
        let text = "x-base: &base\n  restart: always\nservices:\n  db:\n    <<: *base\n    image: postgres:17\n  web:\n    build: .\n    image: own.test/web\n    environment:\n      API_TOKEN: ${API_TOKEN:?}\n      PORT: ${PORT}\n  other:\n    image: reg.test/team/other:1\n";
        assert_eq!(
            told("docker-compose.override.yml", text),
            [
                "sure container images from the registries of `containers` @6",
                "sure container images: GET https://reg.test/v2/team/other/manifests/ @14",
                "likely a secret in `API_TOKEN` @11",
            ]
        );
    }

    #[test]
    fn a_development_container_names_its_image_features_and_commands() {
        let text = "{\n  // ours\n  \"image\": \"mcr.test/devcontainers/base:1\",\n  \"features\": {\"ghcr.test/features/go:1\": {},},\n  \"postCreateCommand\": \"npm ci\"\n}";
        assert_eq!(
            told(".devcontainer/devcontainer.json", text),
            [
                "sure container images: GET https://mcr.test/v2/devcontainers/base/manifests/ @3",
                "sure features of a development container: GET https://ghcr.test/v2/features/go/manifests/ @4",
                "likely npm packages from the registries of `npm` @5",
            ]
        );
    }
}
