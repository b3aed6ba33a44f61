//! What tests of the readers share: the needs of one file, a line each.
use super::{Certainty, RepositoryFile, needs};

/// `sure npm packages: GET https://... @LINE` for each need of a file that is read without notes.
pub(super) fn told(path: &str, text: &str) -> Vec<String> {
    assert!(super::is_interesting(path), "{path} is not interesting");
    let found = needs(&[RepositoryFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }]);
    assert_eq!(found.notes, Vec::<String>::new());
    let line = |need: &super::Need| {
        let certainty = match need.certainty {
            Certainty::Sure => "sure",
            Certainty::Likely => "likely",
        };
        format!("{certainty} {need} @{}", need.from[0].line)
    };
    found.needs.iter().map(line).collect()
}
