//! Finding and ending all descendants of a process by parentage, whatever groups or sessions they made.
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeSet, HashMap};

/// One process as `/proc` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    parent: i32,
    /// In clock ticks since boot: with the pid it identifies the process.
    started: u64,
}

/// Sends `signal` to every living descendant of `root`, not to `root` itself; answers how many there were.
pub(crate) fn signal_descendants(root: i32, signal: Signal) -> usize {
    let processes = processes();
    let found = descendants(&processes, root);
    for pid in &found {
        if let Some(seen) = processes.get(pid) {
            send(*pid, seen.started, signal);
        }
    }
    found.len()
}

/// Kills every descendant of `root`: first all are stopped so that none can make new ones, then killed.
pub(crate) fn kill_descendants(root: i32) -> usize {
    let mut stopped = BTreeSet::new();
    loop {
        let processes = processes();
        let new: Vec<i32> = descendants(&processes, root)
            .into_iter()
            .filter(|pid| !stopped.contains(pid))
            .collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            if let Some(seen) = processes.get(&pid) {
                send(pid, seen.started, Signal::STOP);
            }
            stopped.insert(pid);
        }
    }
    signal_descendants(root, Signal::KILL)
}

/// Living children of `root`.
pub(crate) fn children(root: i32) -> Vec<i32> {
    processes()
        .into_iter()
        .filter(|(_, seen)| seen.parent == root)
        .map(|(pid, _)| pid)
        .collect()
}

/// Kills one process and all its descendants.
pub(crate) fn kill_tree(pid: i32) {
    if let Some(seen) = look(pid) {
        send(pid, seen.started, Signal::STOP);
        kill_descendants(pid);
        send(pid, seen.started, Signal::KILL);
    }
}

/// Signals the process that has this pid and start time, and no later one.
fn send(pid: i32, started: u64, signal: Signal) {
    let Some(raw) = Pid::from_raw(pid) else { return };
    // A failure means that it is gone, which is what is wanted.
    let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else {
        return;
    };
    if look(pid).is_some_and(|seen| seen.started == started) {
        let _gone = pidfd_send_signal(&handle, signal);
    }
}

fn descendants(processes: &HashMap<i32, Seen>, root: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (pid, seen) in processes {
            if seen.parent == parent && found.insert(*pid) {
                parents.push(*pid);
            }
        }
    }
    found
}

/// Every living process; zombies have ended and are left out.
fn processes() -> HashMap<i32, Seen> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, look(pid)?)))
        .collect()
}

fn look(pid: i32) -> Option<Seen> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The fields of `/proc/PID/stat` (proc(5)) that matter; the name in parentheses may hold anything.
fn parse(stat: &str) -> Option<Seen> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    Some(Seen {
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Seen, parse};

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse_the_fields() {
        let stat = "7 (a) S 9 (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(
            parse(stat),
            Some(Seen {
                parent: 1,
                started: 4711
            })
        );
    }

    #[test]
    fn a_zombie_and_nonsense_are_no_living_process() {
        assert_eq!(
            parse("7 (a) Z 1 7 7 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"),
            None
        );
        assert_eq!(parse("nonsense"), None);
    }
}
