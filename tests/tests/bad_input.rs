//! Bad input and missing means: each gives a message that names the thing and the way out, and a non-zero exit code.
use sallyport_harness::{Running, Stage};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(180);

/// Runs a command that must fail; its exit code and all that it printed.
fn failure(command: &mut Command) -> (i32, String) {
    let (status, printed) = Running::start(command)
        .expect("starts")
        .finish(LONG)
        .expect("ends");
    assert!(!status.success(), "it should have failed:\n{printed}");
    (status.code().expect("an exit code, not a signal"), printed)
}

fn write(stage: &Stage, name: &str, text: &str) -> String {
    let path = stage.path("home").join(name);
    std::fs::write(&path, text).expect("writable");
    path.to_string_lossy().into_owned()
}

fn up(stage: &Stage) -> Running {
    let mut up = Running::start(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"])).expect("starts");
    up.wait_for("http://127.0.0.1:", SHORT)
        .expect("the page's address");
    up
}

#[test]
fn all_problems_of_a_policy_are_told_at_once_with_their_place() {
    let stage = Stage::new().expect("a stage");
    let text = "version: 1\nrules:\n  - {id: a, to: {hots: x.test}, effect: allow}\n  - {id: b, to: {host: 10.0.0.0/33}, effect: allow}\n";
    let file = write(&stage, "policy.yaml", text);
    let (code, printed) = failure(stage.command("sallyport").args(["policy", "check", &file]));
    assert_eq!(code, 3, "{printed}");
    assert!(
        printed.contains("policy.yaml:3:") && printed.contains("did you mean `host`"),
        "{printed}"
    );
    assert!(
        printed.contains("policy.yaml:4:") && printed.contains("10.0.0.0/33"),
        "{printed}"
    );
}

#[test]
fn a_run_file_with_an_unknown_field_is_refused_with_its_place() {
    let stage = Stage::new().expect("a stage");
    let file = write(&stage, "run.yaml", "title: x\ntask: y\npolicee: z.yaml\n");
    let (code, printed) = failure(&mut stage.sallyport(&["run", &file]));
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed.contains("run.yaml:3:") && printed.contains("policee"),
        "{printed}"
    );
}

#[test]
fn a_port_that_is_taken_is_named_with_the_way_out() {
    let stage = Stage::new().expect("a stage");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (_, printed) = failure(&mut stage.sallyport(&["up", "--listen", &address]));
    assert!(
        printed.contains(&address) && printed.contains("--listen"),
        "{printed}"
    );
    assert!(stage.processes().is_empty(), "nothing is left running");
}

#[test]
fn a_second_supervisor_on_one_state_directory_is_refused_and_told_of_the_first() {
    let stage = Stage::new().expect("a stage");
    let mut first = up(&stage);
    let (_, printed) = failure(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"]));
    assert!(
        printed.contains(&format!("process {}", first.pid())) && printed.contains("--state"),
        "{printed}"
    );
    first.terminate().expect("a signal");
    let (status, printed) = first.finish(SHORT).expect("ends");
    assert!(status.success(), "{printed}");
    assert!(
        stage.processes().is_empty(),
        "nothing is left running: {:?}",
        stage.processes()
    );
    // It was an orderly end, so that the next one begins at once.
    first = up(&stage);
    first.terminate().expect("a signal");
    first.finish(SHORT).expect("ends");
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named() {
    let stage = Stage::new().expect("a stage");
    let mut command = stage.command("sallyport");
    command.args(["up", "--listen", "127.0.0.1:0", "--state", "/proc/nowhere"]);
    let (_, printed) = failure(&mut command);
    assert!(printed.contains("/proc/nowhere"), "{printed}");
}

#[test]
fn a_host_without_user_namespaces_is_told_what_to_do() {
    let stage = Stage::new().expect("a stage");
    let sallyport = stage.path("bin/sallyport");
    let state = stage.path("state");
    // The limit counts in the user namespace where it is set, and below: the host itself keeps its own.
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec {} up --listen 127.0.0.1:0 --state {}",
        sallyport.display(),
        state.display()
    );
    let mut command = stage.ordinary(Path::new("unshare"));
    command.args(["--user", "--map-root-user", "sh", "-c", &script]);
    let (_, printed) = failure(&mut command);
    assert!(
        printed.contains("user namespaces") && printed.contains("max_user_namespaces"),
        "{printed}"
    );
    assert!(stage.processes().is_empty(), "nothing is left running");
}

#[test]
fn a_model_that_cannot_be_reached_is_named_and_the_run_can_be_stopped() {
    let stage = Stage::new().expect("a stage");
    write(&stage, "policy.yaml", "version: 1\nrules: []\n");
    let text = "title: t\ntask: do it\npolicy: policy.yaml\n\
                model: {kind: openai, model: m, base_url: \"http://127.0.0.1:9/v1\"}\n";
    let file = write(&stage, "run.yaml", text);
    let up = up(&stage);
    let mut run = Running::start(&mut stage.sallyport(&["run", &file])).expect("starts");
    let first = run.wait_for("run ", SHORT).expect("the run's id");
    let id = first.split_whitespace().nth(1).expect("an id").to_owned();
    run.wait_for("127.0.0.1:9", SHORT).expect("the model's address");
    let stopped = stage.sallyport(&["stop", &id]).output().expect("runs");
    assert!(
        stopped.status.success(),
        "{}",
        String::from_utf8_lossy(&stopped.stderr)
    );
    let (status, printed) = run.finish(SHORT).expect("ends");
    assert!(!status.success(), "{printed}");
    up.terminate().expect("a signal");
    up.finish(SHORT).expect("ends");
}

#[test]
fn a_gateway_that_cannot_write_its_authority_says_where() {
    let stage = Stage::new().expect("a stage");
    let state = stage.path("state/gateway");
    std::fs::write(&state, "a file stands where the folder should be").expect("writable");
    let (_, printed) = failure(&mut stage.sallyport(&["up", "--listen", "127.0.0.1:0"]));
    assert!(printed.contains(&*state.to_string_lossy()), "{printed}");
    assert!(Path::new(&state).is_file(), "nothing is overwritten");
}
