//! Values and keys stay where they belong: not in the keeper's or a machine's memory, not in files and logs, not in another run's machine.
use sallyport_harness::{Running, Stage, files_with, memory_with};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(240);
const VALUE: &str = "ghp_Tq3Vw8Yb1Nc6Md9Ke4Jf7Hg2Pa5Rs0Zx";
/// Folders of a machine that are its own.
const OWN: &[&str] = &[
    "etc", "home", "root", "run", "tmp", "var", "srv", "mnt", "dev/shm",
];

/// Lays a run whose agent uses its credential, says that it is ready, and waits a while.
fn lay(stage: &Stage, name: &str) -> String {
    let policy = "version: 1\ncredentials:\n  key: {from: {store: probe-key}, hosts: [allowed.test], in: [basic, bearer], env: PROBE_KEY}\n\
                  rules:\n  - {id: allowed, to: {host: allowed.test}, use: [key], effect: allow}\n";
    let script = "curl -s -o /dev/null -H \"Authorization: Bearer $PROBE_KEY\" https://allowed.test/; \
                  echo placeholder=$PROBE_KEY; for i in $(seq 500); do sleep 0.1; done";
    let turns = serde_json::json!([
        {"tools": [{"bash": {"command": script, "timeout_s": 60}}]},
        {"tools": [{"done": {"summary": "waited", "success": true}}]},
    ]);
    let run = "title: wait\ntask: wait\npolicy: policy.yaml\nmodel: {kind: scripted, turns: turns.yaml}\nsecrets: {probe-key: key}\n";
    let folder = stage.path("home").join(name);
    std::fs::create_dir(&folder).expect("writable");
    for (file, text) in [
        ("policy.yaml", policy),
        ("turns.yaml", &turns.to_string()),
        ("run.yaml", run),
        ("key", VALUE),
    ] {
        std::fs::write(folder.join(file), text).expect("writable");
    }
    folder.to_string_lossy().into_owned()
}

/// The placeholder that a run printed.
fn placeholder(run: &mut Running) -> String {
    let line = run
        .wait_for("placeholder=ghp_", SHORT)
        .expect("the machine is ready");
    let (_, text) = line.split_once("placeholder=").expect("found");
    text.trim().to_owned()
}

/// Every process by the pid namespace that it lives in, of those that run below the stage or in a machine of it.
fn machines(stage: &Stage) -> BTreeMap<PathBuf, Vec<u32>> {
    let own = std::fs::read_link("/proc/self/ns/pid").expect("readable");
    let shims = std::fs::read_dir("/proc")
        .expect("readable")
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?))
        });
    let mut all: BTreeMap<PathBuf, Vec<u32>> = BTreeMap::new();
    for (pid, space) in shims.filter(|(_, space)| *space != own) {
        all.entry(space).or_default().push(pid);
    }
    // Only what this stage made: a machine's root is mounted from below it.
    let mark = stage.path("state").to_string_lossy().into_owned();
    all.retain(|_, pids| {
        pids.iter().any(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&mark)
        })
    });
    all
}

/// The needles that lie in files of a machine or in the memory of its processes.
fn found_in(pids: &[u32], needles: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (what, needle) in needles {
        for pid in pids {
            if memory_with(*pid, needle) == Some(true) {
                found.push(format!("{what} in the memory of process {pid}"));
            }
        }
        for folder in OWN {
            let folder = PathBuf::from(format!("/proc/{}/root/{folder}", pids[0]));
            let files = files_with(&folder, needle).unwrap_or_default();
            found.extend(files.iter().map(|file| format!("{what} in {}", file.display())));
        }
    }
    found
}

/// A line of a private key's body, wherever one lies below a folder.
fn key_lines(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            lines.extend(key_lines(&path));
        } else if let Ok(text) = std::fs::read_to_string(&path)
            && text.contains("PRIVATE KEY-----")
        {
            lines.extend(text.lines().nth(1).map(str::to_owned));
        }
    }
    lines
}

#[test]
fn neither_the_keeper_nor_a_machine_holds_a_value_a_key_or_what_is_anothers() {
    if !rustix::process::geteuid().is_root() {
        // Who is not root cannot read the memory of others.
        return;
    }
    let stage = Stage::new().expect("a stage");
    let (first, second) = (lay(&stage, "first"), lay(&stage, "second"));
    let mut up = Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts");
    up.wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");
    let start = |folder: &str| Running::start(&mut stage.sallyport(&["run", folder])).expect("starts");
    let (mut one, mut two) = (start(&first), start(&second));
    let placeholders = [placeholder(&mut one), placeholder(&mut two)];
    assert_ne!(placeholders[0], placeholders[1]);

    let keys = key_lines(&stage.path("state/gateway"));
    assert!(!keys.is_empty(), "the authority has a key");
    let mut needles = vec![("the value", VALUE)];
    needles.extend(keys.iter().map(|line| ("a private key", line.as_str())));
    let machines = machines(&stage);
    assert_eq!(machines.len(), 2, "{machines:?}");
    let holds = |pids: &[u32], placeholder: &str| !found_in(pids, &[("it", placeholder)]).is_empty();
    for pids in machines.values() {
        assert_eq!(found_in(pids, &needles), Vec::<String>::new());
        let own: Vec<bool> = placeholders.iter().map(|text| holds(pids, text)).collect();
        assert_eq!(
            own.iter().filter(|holds| **holds).count(),
            1,
            "its own placeholder, and no other's"
        );
        let root = format!("/proc/{}/root", pids[0]);
        for socket in ["run/gateway.sock", "run/sallyport/gateway.sock"] {
            assert!(!Path::new(&root).join(socket).exists(), "{socket}");
        }
    }
    let outside = stage.processes().into_iter().filter(|pid| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        !program.ends_with("sallyport-gateway") && program.starts_with(stage.path("bin"))
    });
    let mut looked_at = 0;
    for pid in outside {
        for (what, needle) in &needles {
            assert_ne!(memory_with(pid, needle), Some(true), "{what} in process {pid}");
        }
        looked_at += 1;
    }
    assert!(looked_at >= 3, "the keeper and two commands at least");
    for folder in ["state", "home"] {
        let found = files_with(&stage.path(folder), VALUE).expect("readable");
        let found: Vec<_> = found.iter().filter(|path| !path.ends_with("key")).collect();
        assert!(found.is_empty(), "the value stands in {found:?}");
    }
    let runs = stage.sallyport(&["ls", "--json"]).output().expect("runs");
    for run in String::from_utf8(runs.stdout).expect("text").lines() {
        let run: serde_json::Value = serde_json::from_str(run).expect("a JSON line");
        let stop = ["stop", run["id"].as_str().expect("an id")];
        assert!(stage.sallyport(&stop).output().expect("runs").status.success());
    }
    for run in [one, two] {
        let (_stopped, printed) = run.finish(LONG).expect("ends");
        assert!(!printed.contains(VALUE), "{printed}");
    }
    up.terminate().expect("a signal");
    let (_, printed) = up.finish(SHORT).expect("ends");
    assert!(!printed.contains(VALUE));
}
