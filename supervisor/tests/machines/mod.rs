//! What the tests of real machines share: a host with a driver, a machine, a script run in it.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share stops them, as a test does"
)]
use sallyport_shim::wire::ExecEnd;
use sallyport_supervisor::machine::namespace::NamespaceDriver;
use sallyport_supervisor::machine::{Driver, ExecCall, Machine, MachineRecord, MachineSpec};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use tokio::sync::mpsc;

pub(crate) fn keeper() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sallyport"))
}

/// The shim, built beside the keeper, or where the variable says that it is built already.
pub(crate) fn shim() -> PathBuf {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(built) = std::env::var_os("SALLYPORT_TEST_SHIM") {
            return built.into();
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "sallyport-shim"]);
        assert!(cargo.status().unwrap().success());
        keeper().with_file_name("sallyport-shim")
    };
    SHIM.get_or_init(build).clone()
}

pub(crate) struct Host {
    pub(crate) driver: NamespaceDriver,
    pub(crate) state: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new() -> Host {
        let state = tempfile::tempdir().unwrap();
        let driver = NamespaceDriver::new(state.path().join("machines"), keeper(), shim());
        Host { driver, state }
    }

    pub(crate) async fn machine(&self, id: &str) -> (MachineRecord, Machine) {
        let spec = MachineSpec {
            id: id.to_owned(),
            binds: Vec::new(),
        };
        let record = self.driver.create(&spec).await.unwrap();
        let machine = self.driver.connect(&record).await.unwrap();
        (record, machine)
    }
}

impl Drop for Host {
    /// Ends what a failed test left running.
    fn drop(&mut self) {
        let Ok(machines) = std::fs::read_dir(self.state.path().join("machines")) else {
            return;
        };
        for kept in machines.filter_map(|entry| std::fs::read(entry.ok()?.path().join("kept.json")).ok()) {
            let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap_or_default();
            // It has ended long ago where the test came to its end.
            let _ended = Command::new("kill")
                .args(["-9", &kept["keeper"]["pid"].to_string()])
                .output();
        }
    }
}

pub(crate) fn call(id: &str, script: &str) -> ExecCall {
    ExecCall {
        id: id.to_owned(),
        argv: ["bash", "-c", script].map(str::to_owned).to_vec(),
        cwd: "/home/agent".to_owned(),
        env: BTreeMap::new(),
        timeout_ms: 60_000,
    }
}

/// Output (both streams) and end of a script.
pub(crate) async fn run(machine: &Machine, id: &str, script: &str) -> (String, ExecEnd) {
    let (give, mut take) = mpsc::channel(64);
    let call = call(id, script);
    let exec = machine.exec(&call, give);
    let read = async {
        let mut all = Vec::new();
        while let Some(piece) = take.recv().await {
            all.extend_from_slice(&piece.bytes);
        }
        String::from_utf8_lossy(&all).into_owned()
    };
    let (outcome, text) = tokio::join!(exec, read);
    (text, outcome.unwrap().end)
}
