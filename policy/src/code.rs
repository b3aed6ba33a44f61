//! Short stable names of the kinds of problems, for tools that count, filter or explain them.
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The text is no YAML that is accepted.
    InvalidYaml,
    /// A mapping has a field that the language does not know.
    UnknownField,
    /// A value is of another kind than its field takes.
    WrongType,
    /// A word is none of those that its field takes.
    UnknownWord,
    /// A set, credential, rule or time zone that nobody has defined is named.
    UnknownName,
    /// The same name is defined twice.
    DefinedTwice,
    /// An included file is missing, or includes itself.
    BadInclude,
    /// A value cannot be read, or fields do not go together.
    #[default]
    InvalidValue,
    /// A test of the policy does not come out as it says.
    FailedTest,
    /// What no rule names is let pass.
    DefaultAllow,
    /// A host pattern names more than anybody can oversee.
    BroadHost,
    /// A rule never decides, since another refuses all that it names.
    ShadowedRule,
    /// A rule can never match.
    UnreachableRule,
    /// A rule passes unread what another wants to look at.
    UnreadRule,
    /// A credential goes to none of its hosts, or not to all of them.
    UnusedCredential,
    /// A set is named by nothing.
    UnusedSet,
    /// The same entry stands in one list twice.
    DuplicateEntry,
    /// Two rules say the same.
    DuplicateRule,
    /// A rule lets ssh through to a host whose key is not known.
    UnknownHostKey,
    /// A grant may last longer than the longest run.
    LongGrant,
    /// A warning of no other kind.
    Doubtful,
}

impl Code {
    /// Every kind.
    pub const ALL: [Self; 21] = [
        Self::InvalidYaml,
        Self::UnknownField,
        Self::WrongType,
        Self::UnknownWord,
        Self::UnknownName,
        Self::DefinedTwice,
        Self::BadInclude,
        Self::InvalidValue,
        Self::FailedTest,
        Self::DefaultAllow,
        Self::BroadHost,
        Self::ShadowedRule,
        Self::UnreachableRule,
        Self::UnreadRule,
        Self::UnusedCredential,
        Self::UnusedSet,
        Self::DuplicateEntry,
        Self::DuplicateRule,
        Self::UnknownHostKey,
        Self::LongGrant,
        Self::Doubtful,
    ];

    /// As tools write it: `unknown-field`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidYaml => "invalid-yaml",
            Self::UnknownField => "unknown-field",
            Self::WrongType => "wrong-type",
            Self::UnknownWord => "unknown-word",
            Self::UnknownName => "unknown-name",
            Self::DefinedTwice => "defined-twice",
            Self::BadInclude => "bad-include",
            Self::InvalidValue => "invalid-value",
            Self::FailedTest => "failed-test",
            Self::DefaultAllow => "default-allow",
            Self::BroadHost => "broad-host",
            Self::ShadowedRule => "shadowed-rule",
            Self::UnreachableRule => "unreachable-rule",
            Self::UnreadRule => "unread-rule",
            Self::UnusedCredential => "unused-credential",
            Self::UnusedSet => "unused-set",
            Self::DuplicateEntry => "duplicate-entry",
            Self::DuplicateRule => "duplicate-rule",
            Self::UnknownHostKey => "unknown-host-key",
            Self::LongGrant => "long-grant",
            Self::Doubtful => "doubtful",
        }
    }

    /// One sentence for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::InvalidYaml => "The text is no YAML that is accepted.",
            Self::UnknownField => "A mapping has a field that the language does not know.",
            Self::WrongType => "A value is of another kind than its field takes.",
            Self::UnknownWord => "A word is none of those that its field takes.",
            Self::UnknownName => "Something that nobody has defined is named.",
            Self::DefinedTwice => "The same name is defined twice.",
            Self::BadInclude => "An included file is missing, or includes itself.",
            Self::InvalidValue => "A value cannot be read, or fields do not go together.",
            Self::FailedTest => "A test of the policy does not come out as it says.",
            Self::DefaultAllow => "What no rule names is let pass.",
            Self::BroadHost => "A host pattern names more than anybody can oversee.",
            Self::UnreachableRule => "A rule can never match any request.",
            Self::ShadowedRule => "A rule never decides, since another refuses all that it names.",
            Self::UnreadRule => "A rule passes unread what another wants to look at.",
            Self::UnusedCredential => "A credential goes to none of its hosts, or not to all of them.",
            Self::UnusedSet => "A set is named by nothing.",
            Self::DuplicateEntry => "The same entry stands in one list twice.",
            Self::DuplicateRule => "Two rules say the same.",
            Self::UnknownHostKey => "A rule lets ssh through to a host whose key is not known.",
            Self::LongGrant => "A grant may last longer than the longest run.",
            Self::Doubtful => "Somebody should look at this.",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_name_everywhere() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!(code.description().ends_with('.'));
        }
        let mut all = Code::ALL.to_vec();
        all.dedup();
        assert_eq!(all.len(), Code::ALL.len());
        let last = serde_json::from_value::<Code>("doubtful".into()).unwrap();
        assert_eq!(Code::ALL.last(), Some(&last));
    }
}
