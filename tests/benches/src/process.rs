//! Processes beside this one: on a core of their own, watched in /proc, ended by their id when dropped.
use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Where proxies run.
pub(crate) const PROXY_CORE: usize = 0;
/// Where load and origin run.
pub(crate) const LOAD_CORE: usize = 1;
/// Units of processor time in /proc, a second (`USER_HZ`, 100 wherever Linux runs servers).
const TICKS: u64 = 100;

/// A program that runs, with everything that it started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts it on a core: it and its threads inherit where this thread may run at that moment.
    pub(crate) fn start(command: &mut Command, core: usize) -> anyhow::Result<Self> {
        stay_on(core)?;
        let child = command.spawn();
        stay_on(LOAD_CORE)?;
        let child = child.with_context(|| format!("`{}` does not start", command.get_program().display()))?;
        Ok(Self { child })
    }

    /// Waits until it listens there.
    pub(crate) async fn listens(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let answers = async || tokio::net::TcpStream::connect(address).await.is_ok();
        self.until(&address.to_string(), answers).await
    }

    /// Waits until it listens on a unix socket.
    pub(crate) async fn listens_at(&mut self, socket: &Path) -> anyhow::Result<()> {
        let answers = async || tokio::net::UnixStream::connect(socket).await.is_ok();
        self.until(&socket.display().to_string(), answers).await
    }

    async fn until(&mut self, place: &str, answers: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while !answers().await {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("it ended before it listened on `{place}`: {status}");
            }
            anyhow::ensure!(Instant::now() < end, "it does not listen on `{place}`");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time so far, of it and of the processes that it started, in microseconds (proc(5), `stat`).
    pub(crate) fn cpu_us(&self) -> anyhow::Result<u64> {
        let mut ticks = 0;
        for id in family(self.id())? {
            let fields = stat(id)?;
            let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
            ticks += field(14).unwrap_or_default() + field(15).unwrap_or_default();
        }
        Ok(ticks * (1_000_000 / TICKS))
    }

    /// Resident memory of it and of the processes that it started, in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for id in family(self.id())? {
            let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            sum += number.unwrap_or_default();
        }
        Ok(sum)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that ended by itself is what is wanted.
        let _killed = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A process and its children.
fn family(id: u32) -> anyhow::Result<Vec<u32>> {
    let listed = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let children = listed.split_whitespace().filter_map(|text| text.parse().ok());
    Ok(std::iter::once(id).chain(children).collect())
}

/// The fields of `/proc/ID/stat` from the third on; the second may hold spaces.
fn stat(id: u32) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, rest) = text.rsplit_once(')').context("/proc has another shape")?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}

/// Binds this thread, and what it starts from now on, to one core.
pub(crate) fn stay_on(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("two cores are needed; core {core} cannot be had"))
}

/// As many open files as the system lets this process and its children have.
pub(crate) fn many_files() -> anyhow::Result<u64> {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit)?;
    Ok(most.unwrap_or(u64::MAX))
}
