//! The run file: what `sallyport run` starts from. YAML, unknown keys refused, errors with `file:line:column`.
use crate::cli::Failure;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest run file, in bytes.
const SIZE_LIMIT: u64 = 1 << 20;

/// A text with its place in the file.
pub(super) type Text = Spanned<String>;

/// A run file as it stands on disk. Relative paths in it are relative to its folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunFile {
    /// Short name for people.
    pub(super) title: String,
    /// What the agent is to do.
    pub(super) task: String,
    /// Path of the policy.
    pub(super) policy: Text,
    /// Which model.
    pub(super) model: Model,
    /// What the machine needs.
    #[serde(default)]
    pub(super) environment: Environment,
    /// Facts about the one who launches it.
    #[serde(default)]
    pub(super) who: Who,
    /// Names in the gateway's store, each with the path of a file that holds the value.
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, Text>,
    /// Programs that run beside it, on the host. Only this command starts them.
    #[serde(default)]
    pub(super) services: Vec<Service>,
    /// Steps after which the run is stopped as stuck.
    #[serde(default)]
    pub(super) step_limit: Option<u32>,
}

/// Which model, and what it needs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) kind: Spanned<ModelKind>,
    /// Path of the turns of a scripted model.
    #[serde(default)]
    pub(super) turns: Option<Text>,
    /// Name of a vendor's model.
    #[serde(default)]
    pub(super) model: Option<Text>,
    /// Base URL, the vendor's where absent.
    #[serde(default)]
    pub(super) base_url: Option<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModelKind {
    Scripted,
    Anthropic,
    Openai,
}

/// What the machine needs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Environment {
    pub(super) name: String,
    /// Variables for every command.
    pub(super) env: BTreeMap<String, Text>,
    /// Fixed addresses for names.
    pub(super) hosts: BTreeMap<String, Text>,
    /// Path of a PEM file of authorities trusted besides the system's.
    pub(super) upstream_ca: Option<Text>,
    /// Paths inside, each with the host folder shown there read-only.
    pub(super) binds: BTreeMap<String, Text>,
    /// Paths inside, each with the host file copied there.
    pub(super) files: BTreeMap<String, Text>,
    /// Where the package registries come from.
    pub(super) registries: Option<Registries>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Registries {
    /// Those that the host's own pip and npm are configured with.
    Host,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Who {
    pub(super) team: String,
    pub(super) repository: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// A program beside the run: prints one line of JSON when it is ready.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    /// Name in `${NAME.FIELD}`.
    #[serde(default = "service")]
    pub(super) name: String,
    /// Program and arguments.
    pub(super) command: Vec<Text>,
}

fn service() -> String {
    "service".to_owned()
}

/// A run file that was read, with where it is.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Its path, as errors show it.
    pub(super) path: PathBuf,
    /// Its folder, absolute.
    pub(super) here: PathBuf,
    pub(super) file: RunFile,
}

impl Loaded {
    /// Reads `FILE`, or `run.yaml` in `DIR`.
    pub(super) fn read(given: &Path) -> Result<Self, Failure> {
        let path = if given.is_dir() {
            given.join("run.yaml")
        } else {
            given.to_path_buf()
        };
        let text =
            read_text(&path, SIZE_LIMIT).map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
        let file = parse(&path, &text)?;
        let whole = std::path::absolute(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        let here = whole.parent().unwrap_or(Path::new("/")).to_path_buf();
        Ok(Self { path, here, file })
    }

    /// An error about a place in this file.
    pub(super) fn wrong<T>(&self, at: &Spanned<T>, what: &str) -> Failure {
        let at = at.referenced;
        Failure::new(format!(
            "{}:{}:{}: {what}",
            self.path.display(),
            at.line(),
            at.column()
        ))
    }
}

/// The content of a text file, or why there is none, in a few words.
pub(super) fn read_text(path: &Path, limit: u64) -> Result<String, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut text = String::new();
    let read = file.take(limit + 1).read_to_string(&mut text);
    let length = read.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => "is not UTF-8 text".to_owned(),
        _ => format!("cannot be read: {error}"),
    })?;
    if u64::try_from(length).unwrap_or(u64::MAX) > limit {
        return Err(format!("is larger than {limit} bytes"));
    }
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<RunFile, Failure> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        let message = error.without_snippet().to_string();
        let message = message.lines().next().unwrap_or_default();
        let message = message.find(" at line ").map_or(message, |at| &message[..at]);
        let message = message
            .trim_start_matches("error: ")
            .trim_end_matches([' ', ',', ':']);
        Failure::new(format!("{}:{line}:{column}: {message}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> String {
        parse(Path::new("run.yaml"), text).unwrap_err().to_string()
    }

    const GOOD: &str = "title: t\ntask: x\npolicy: p.yaml\nmodel: {kind: scripted, turns: t.yaml}\n";

    #[test]
    fn a_short_file_is_enough() {
        let file = parse(Path::new("run.yaml"), GOOD).unwrap();
        assert_eq!(file.policy.value, "p.yaml");
        assert_eq!(file.model.kind.value, ModelKind::Scripted);
        assert!(file.services.is_empty());
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let unknown = failure(&format!("{GOOD}polices: x\n"));
        assert!(
            unknown.starts_with("run.yaml:5:1: ") && unknown.contains("polices"),
            "{unknown}"
        );
        let kind = failure("title: t\ntask: x\npolicy: p\nmodel:\n  kind: magic\n");
        assert!(
            kind.starts_with("run.yaml:5:") && kind.contains("magic"),
            "{kind}"
        );
        let missing = failure("title: t\ntask: x\nmodel: {kind: scripted}\n");
        assert!(missing.contains("policy"), "{missing}");
        let broken = failure("title: [t\n");
        assert!(broken.starts_with("run.yaml:"), "{broken}");
        let twice = failure(&format!("{GOOD}title: again\n"));
        assert!(twice.starts_with("run.yaml:5:"), "{twice}");
        assert!(failure("").starts_with("run.yaml:"));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            Loaded::read(folder.path())
                .unwrap_err()
                .to_string()
                .contains("run.yaml: cannot be read")
        );
        let file = folder.path().join("x.yaml");
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(Loaded::read(&file).unwrap_err().to_string().contains("not UTF-8"));
    }
}
