//! Maven and gradle: repositories of pom.xml, servers of settings.xml, `maven { url }`, the wrapper's distribution.
use super::finds::{Find, Finds, Spot, numbered, variables};
use super::shell::urls;
use super::tree::{xml, xml_line};

const WHAT: &str = "java packages";
const ECOSYSTEM: &str = "maven";

/// Whether this is a file of theirs.
pub(super) fn reads(name: &str) -> bool {
    matches!(
        name,
        "pom.xml" | "settings.xml" | "gradle-wrapper.properties" | "maven-wrapper.properties"
    ) || is_gradle(name)
}

fn is_gradle(name: &str) -> bool {
    name.ends_with(".gradle") || name.ends_with(".gradle.kts")
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    match finds.name() {
        "pom.xml" | "settings.xml" => match xml(finds.text) {
            Ok(document) => maven(&document, finds),
            Err(why) => finds.unreadable(&why),
        },
        name if is_gradle(name) => gradle(finds),
        _ => wrapper(finds),
    }
}

fn maven(document: &roxmltree::Document<'_>, finds: &mut Finds<'_>) {
    let root = document.root_element();
    let is_pom = root.tag_name().name() == "project";
    let mut everything_mirrored = false;
    let mut first = None;
    for node in root.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        let spot = xml_line(finds.text, node);
        let child = |name: &str| {
            node.children()
                .find(|child| child.tag_name().name() == name)
                .and_then(|child| child.text())
                .map(str::trim)
        };
        match name {
            "repository" | "pluginRepository" | "snapshotRepository" | "mirror" => {
                let publishes = node
                    .ancestors()
                    .any(|above| above.tag_name().name() == "distributionManagement");
                let find = match publishes {
                    true => Find::likely("publishing java packages", ECOSYSTEM, spot),
                    false => Find::sure(WHAT, ECOSYSTEM, spot),
                };
                finds.address(child("url").unwrap_or_default(), find);
                everything_mirrored |= name == "mirror" && child("mirrorOf") == Some("*");
            }
            "server" => server(child("password").or(child("passphrase")), spot, finds),
            "dependency" | "plugin" | "parent" => first = first.or(Some(spot)),
            _ => {}
        }
    }
    if let Some(spot) = first.filter(|_| is_pom && !everything_mirrored) {
        finds.registries(Find::sure(WHAT, ECOSYSTEM, spot));
    }
}

/// A log-in of settings.xml: `${env.NAME}`.
fn server(password: Option<&str>, spot: Spot<'_>, finds: &mut Finds<'_>) {
    let Some(password) = password else { return };
    let plain = password.replace("${env.", "${");
    let find = Find::sure("a log-in", ECOSYSTEM, spot);
    if let Some(variable) = variables(&plain).pop() {
        finds.credential(Some(variable), None, find);
    }
}

/// Gradle's scripts are programs: URLs in `maven { url ... }` are looked for, and calls of the default repositories.
fn gradle(finds: &mut Finds<'_>) {
    let mut depth_of_maven = None;
    let mut depth = 0_usize;
    for (number, line) in numbered(finds.text) {
        // The slashes of an address are no comment.
        let comment = line
            .match_indices("//")
            .find(|(at, _)| !line.get(..*at).is_some_and(|before| before.ends_with(':')));
        let line = comment.and_then(|(at, _)| line.get(..at)).unwrap_or(line);
        let spot = Spot::Line(number);
        if line.contains("maven {") || line.contains("maven{") || line.contains("maven(") {
            depth_of_maven = Some(depth);
        }
        if depth_of_maven.is_some() {
            for url in urls(line) {
                finds.address(url, Find::sure(WHAT, ECOSYSTEM, spot));
            }
            secrets(line, spot, finds);
        }
        let defaults = ["mavenCentral()", "google()", "gradlePluginPortal()", "jcenter()"];
        if defaults.iter().any(|call| line.contains(call)) {
            finds.registries(Find::sure(WHAT, ECOSYSTEM, spot));
        }
        depth += line.matches('{').count();
        depth = depth.saturating_sub(line.matches('}').count());
        if depth_of_maven.is_some_and(|begun| depth <= begun) {
            depth_of_maven = None;
        }
    }
}

/// `System.getenv("NAME")` among a repository's credentials.
fn secrets(line: &str, spot: Spot<'_>, finds: &mut Finds<'_>) {
    for (at, call) in line.match_indices("getenv(") {
        let rest = line.get(at + call.len()..).unwrap_or_default();
        let name = rest
            .trim_start_matches(['"', '\''])
            .split(['"', '\'', ')'])
            .next();
        if let Some(name) = name.filter(|name| super::secrets::is_secret(name)) {
            finds.credential(
                Some(name.to_owned()),
                None,
                Find::sure("a log-in", ECOSYSTEM, spot),
            );
        }
    }
}

/// Properties: `distributionUrl=https\://...`.
fn wrapper(finds: &mut Finds<'_>) {
    for (number, line) in numbered(finds.text) {
        if let Some((key, value)) = line.split_once('=')
            && matches!(key.trim(), "distributionUrl" | "wrapperUrl")
        {
            let url = value.replace("\\:", ":");
            finds.address(
                &url,
                Find::sure("the build tool itself", ECOSYSTEM, Spot::Line(number)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;

    #[test]
    fn a_project_names_its_repositories() {
        let pom = r#"<?xml version="1.0"?>
<project xmlns="urn:maven">
  <repositories>
    <repository><id>own</id><url>https://maven.test/releases</url></repository>
  </repositories>
  <distributionManagement>
    <repository><id>out</id><url>https://publish.test/releases</url></repository>
  </distributionManagement>
  <dependencies>
    <dependency><artifactId>a</artifactId></dependency>
  </dependencies>
</project>"#;
        assert_eq!(
            told("pom.xml", pom),
            [
                "sure java packages: GET https://maven.test/releases @4",
                "likely publishing java packages: GET https://publish.test/releases @7",
                "sure java packages from the registries of `maven` @10",
            ]
        );
    }

    #[test]
    fn settings_name_mirrors_and_log_ins() {
        let settings = "<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>https://mirror.test/m2</url></mirror></mirrors>\n<servers><server><id>own</id><password>${env.MAVEN_TOKEN}</password></server></servers></settings>";
        assert_eq!(
            told(".mvn/settings.xml", settings),
            [
                "sure java packages: GET https://mirror.test/m2 @1",
                "sure a log-in in `MAVEN_TOKEN` @2",
            ]
        );
    }

    #[test]
    fn gradle_scripts_name_repositories() {
        let text = r#"
repositories {
    mavenCentral()
    maven {
        url = uri("https://maven.test/releases") // https://comment.test
        credentials { password = System.getenv("MAVEN_PASSWORD") }
    }
}
println("https://elsewhere.test")
"#;
        assert_eq!(
            told("build.gradle.kts", text),
            [
                "sure java packages from the registries of `maven` @3",
                "sure java packages: GET https://maven.test/releases @5",
                "sure a log-in in `MAVEN_PASSWORD` @6",
            ]
        );
        assert_eq!(
            told(
                "gradle/wrapper/gradle-wrapper.properties",
                "distributionUrl=https\\://dist.test/gradle-9-bin.zip\n"
            ),
            ["sure the build tool itself: GET https://dist.test/gradle-9-bin.zip @1"]
        );
    }
}
