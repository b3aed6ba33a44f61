//! What the gateway is compared with: nothing at all, a plain tunnel, and other proxies that intercept.
use super::Stage;
use crate::process::{PROXY_CORE, Process};
use crate::target::{Target, User, Way};
use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// No proxy.
pub(super) fn direct(stage: &Stage) -> anyhow::Result<Target> {
    Target::new("direct", Way::Direct, None, stage.origin_ca_pem.as_bytes())
}

/// The plain tunnel, whose client sees the origin's own certificate.
pub(super) async fn tunnel(stage: &Stage) -> anyhow::Result<Target> {
    let listen = at(3110);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["tunnel", "--listen", &listen.to_string()]);
    target("tunnel", command, listen, stage.origin_ca_pem.as_bytes()).await
}

/// Squid with `ssl-bump`, which makes leaves with helpers.
pub(super) async fn squid(stage: &Stage, program: &Path) -> anyhow::Result<Target> {
    let listen = at(3111);
    let (folder, pem) = authority(stage, "squid")?;
    let leaves = folder.join("leaves");
    let helper = "/usr/lib/squid/security_file_certgen";
    let made = Command::new(helper)
        .args(["-c", "-s"])
        .arg(&leaves)
        .args(["-M", "64MB"])
        .stdout(Stdio::null())
        .status()
        .context(helper)?;
    anyhow::ensure!(made.success(), "squid's store of leaves cannot be made: {made}");
    let settings = format!(
        "http_port {listen} ssl-bump tls-cert={ca} generate-host-certificates=on dynamic_cert_mem_cache_size=64MB\n\
         sslcrtd_program {helper} -s {leaves} -M 64MB\nsslcrtd_children 4 startup=4\n\
         ssl_bump bump all\ntls_outgoing_options cafile={origin}\nhttp_access allow all\n\
         cache deny all\ncache_mem 8 MB\naccess_log none\ncache_log /dev/null\npid_filename none\n\
         dns_nameservers 127.0.0.1\nmax_filedescriptors 16384\n\
         visible_hostname bench.test\ncoredump_dir none\n",
        ca = folder.join("ca.pem").display(),
        leaves = leaves.display(),
        origin = stage.origin_ca.display(),
    );
    let file = folder.join("squid.conf");
    std::fs::write(&file, settings)?;
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        // As root it does not run; Debian's package brings this user.
        std::fs::set_permissions(stage.folder.path(), Permissions::from_mode(0o755))?;
        let given = Command::new("chown")
            .args(["-R", "proxy:"])
            .arg(&folder)
            .status()?;
        anyhow::ensure!(given.success(), "squid's folder cannot be given to it: {given}");
        command = Command::new("setpriv");
        command
            .args(["--reuid=proxy", "--regid=proxy", "--clear-groups"])
            .arg(program);
    }
    command.args(["-N", "-f"]).arg(&file);
    target("squid", command, listen, pem.as_bytes()).await
}

/// mitmproxy as it comes, without its interface.
pub(super) async fn mitmproxy(stage: &Stage, program: &Path) -> anyhow::Result<Target> {
    let listen = at(3112);
    let (folder, pem) = authority(stage, "mitmproxy")?;
    std::fs::copy(folder.join("ca.pem"), folder.join("mitmproxy-ca.pem"))?;
    let mut command = Command::new(program);
    command
        .args(["--quiet", "--mode", &format!("regular@{listen}"), "--set"])
        .arg(format!("confdir={}", folder.display()))
        .arg("--set")
        .arg(format!(
            "ssl_verify_upstream_trusted_ca={}",
            stage.origin_ca.display()
        ));
    target("mitmproxy", command, listen, pem.as_bytes()).await
}

/// hudsucker in the small program that stands beside this one.
pub(super) async fn hudsucker(stage: &Stage, program: &Path) -> anyhow::Result<Target> {
    let listen = at(3113);
    let (folder, pem) = authority(stage, "hudsucker")?;
    let mut command = Command::new(program);
    command
        .arg(listen.to_string())
        .arg(folder.join("ca.pem"))
        .arg(&stage.origin_ca);
    target("hudsucker", command, listen, pem.as_bytes()).await
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

async fn target(
    name: &'static str,
    mut command: Command,
    listen: SocketAddr,
    roots_pem: &[u8],
) -> anyhow::Result<Target> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Process::start(&mut command, PROXY_CORE)?;
    process
        .listens(listen)
        .await
        .with_context(|| format!("`{name}`"))?;
    Target::new(
        name,
        Way::Connect(listen, vec![User::nobody()]),
        Some(process),
        roots_pem,
    )
}

/// A folder with an authority for a peer: `ca.pem` holds key and certificate. Gives the certificate's PEM.
fn authority(stage: &Stage, name: &str) -> anyhow::Result<(PathBuf, String)> {
    let folder = tempfile::Builder::new()
        .prefix(name)
        .tempdir_in(stage.folder.path())?
        .keep();
    let key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    ca.distinguished_name.push(DnType::CommonName, "peer authority");
    let pem = ca.self_signed(&key)?.pem();
    std::fs::write(folder.join("ca.pem"), format!("{}{pem}", key.serialize_pem()))?;
    Ok((folder, pem))
}
