//! The policy files that are shipped: package registries, git hosts, model providers, mirrors of operating systems, and sites to refuse.
use crate::PolicyText;
use std::sync::LazyLock;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../presets/", $name, ".yaml")))),*]
    };
}

/// Name and text, in the order in which they are listed.
const SHIPPED: &[(&str, &str)] = shipped![
    "python",
    "npm",
    "cargo",
    "go",
    "maven",
    "rubygems",
    "nuget",
    "php",
    "containers",
    "debian",
    "ubuntu",
    "alpine",
    "fedora",
    "github",
    "gitlab",
    "bitbucket",
    "anthropic",
    "openai",
    "google-ai",
    "mistral",
    "openrouter",
    "paste-sites",
    "request-catchers",
];

static TEXTS: LazyLock<Vec<PolicyText>> = LazyLock::new(|| {
    let text = |(name, text): &(&str, &str)| PolicyText {
        name: format!("preset:{name}"),
        text: (*text).to_owned(),
    };
    SHIPPED.iter().map(text).collect()
});

/// A policy file that is shipped and can be included as `preset:NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Without `preset:`.
    pub name: &'static str,
    /// YAML, with comments.
    pub text: &'static str,
}

impl Preset {
    /// What it is for: the file's first line, which is a comment.
    pub fn purpose(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches(['#', ' '])
    }
}

/// All that are shipped, by kind.
pub fn presets() -> impl Iterator<Item = Preset> {
    SHIPPED.iter().map(|(name, text)| Preset { name, text })
}

/// The text that stands for `preset:NAME` where the caller gives none.
pub(crate) fn text(name: &str) -> Option<&'static PolicyText> {
    TEXTS.iter().find(|text| text.name == name)
}
