//! Reading a policy file and the files that it includes.
use sallyport_policy::{PolicyText, included_names};
use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;

/// Largest file that is read, in bytes; the policy library refuses it well before.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;
/// Most files of one policy.
const FILE_COUNT_LIMIT: usize = 64;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` cannot be read: {why}")]
pub struct LoadFault {
    /// As named.
    pub name: String,
    /// What the system said.
    pub why: String,
}

/// Reads a policy and all that it includes, in the form that `Policy::compile` wants. An included file that does not
/// exist is left out here: compiling names it, with its position.
pub fn load(path: &Path) -> Result<Vec<PolicyText>, LoadFault> {
    let name = name(path)?;
    let mut texts = vec![read(name)?];
    let mut seen: HashSet<String> = HashSet::from([sallyport_policy::include::resolve("", name)]);
    let mut next = 0;
    while let Some(text) = texts.get(next) {
        next += 1;
        for included in included_names(text) {
            let is_file = !included.starts_with("preset:") && Path::new(&included).exists();
            if is_file && seen.insert(included.clone()) && texts.len() < FILE_COUNT_LIMIT {
                let text = read(&included)?;
                texts.push(text);
            }
        }
    }
    Ok(texts)
}

/// Reads one file alone.
pub fn text(path: &Path) -> Result<PolicyText, LoadFault> {
    read(name(path)?)
}

fn name(path: &Path) -> Result<&str, LoadFault> {
    path.to_str().ok_or_else(|| LoadFault {
        name: path.display().to_string(),
        why: "its name is not UTF-8".to_owned(),
    })
}

fn read(name: &str) -> Result<PolicyText, LoadFault> {
    let unreadable = |why: String| LoadFault {
        name: name.to_owned(),
        why,
    };
    let file = std::fs::File::open(name).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(unreadable(format!("it has more than {FILE_LIMIT} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8 text".to_owned()))?;
    Ok(PolicyText {
        name: name.to_owned(),
        text,
    })
}
