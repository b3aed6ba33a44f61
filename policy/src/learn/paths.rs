//! Few patterns for many paths: where a folder has many entries, the folder stands for them.
use std::collections::BTreeMap;

/// A folder with more entries than these is named as a whole.
const SIBLINGS: usize = 8;

/// A tree of segments.
#[derive(Debug, Default)]
struct Node {
    children: BTreeMap<String, Node>,
    ends: bool,
}

/// Patterns that match all of these, in order.
pub(super) fn merged<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut root = Node::default();
    for pattern in patterns {
        let mut node = &mut root;
        for segment in pattern.split('/').skip(1) {
            node = node.children.entry(segment.to_owned()).or_default();
        }
        node.ends = true;
    }
    let mut found = Vec::new();
    root.collect("", &mut found);
    // A folder named as a whole stands for itself too, with or without its slash.
    let whole: Vec<String> = found
        .iter()
        .filter_map(|pattern| pattern.strip_suffix("/**").map(str::to_owned))
        .collect();
    found.retain(|pattern| !whole.iter().any(|folder| pattern.trim_end_matches('/') == folder));
    found
}

impl Node {
    fn collect(&self, before: &str, found: &mut Vec<String>) {
        if self.children.len() > SIBLINGS {
            found.push(format!("{before}/**"));
            return;
        }
        if self.ends {
            found.push(before.to_owned());
        }
        for (segment, child) in &self.children {
            child.collect(&format!("{before}/{segment}"), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_entries_of_a_folder_become_the_folder() {
        let many: Vec<String> = (0..9).map(|number| format!("/a/x/n{number}y")).collect();
        let all = many.iter().map(String::as_str);
        assert_eq!(merged(all.clone()), ["/a/x/**"]);
        assert_eq!(merged(all.clone().take(8)).len(), 8);
        assert_eq!(
            merged(all.chain(["/a/x", "/a/x/", "/b/{id}", "/"])),
            ["/", "/a/x/**", "/b/{id}"]
        );
        assert_eq!(merged([]), Vec::<String>::new());
    }
}
