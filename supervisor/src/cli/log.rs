//! `sallyport log`: the network log as a table that fits the terminal, or as JSON lines.
use super::client::Supervisor;
use super::screen::Style;
use super::{Failure, Screen, plain};
use crate::state_dir::StateDir;
use sallyport_gateway::control::types::{AuditQuery, AuditRecord, Verdict};
use std::process::{ExitCode, Stdio};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only this run
    #[arg(long)]
    run: Option<String>,
    /// Only this host and those below it
    #[arg(long)]
    host: Option<String>,
    /// Only this verdict
    #[arg(long, value_parser = verdict)]
    verdict: Option<Verdict>,
    /// At most so many records (1000 at most)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only records before this sequence number
    #[arg(long)]
    before: Option<u64>,
    /// Print the records as JSON, one a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Prove that no record was changed, or removed from the middle
    Verify,
}

fn verdict(text: &str) -> Result<Verdict, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|_| {
        "one of allowed, denied, asked, malformed, upstream-failed, granted, observed is wanted".to_owned()
    })
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    if let Some(Command::Verify) = args.command {
        return super::secret::gateway(state, &["log", "verify"], Stdio::null()).await;
    }
    let query = AuditQuery {
        session: args.run,
        host: args.host,
        verdict: args.verdict,
        before: args.before,
        limit: Some(args.limit),
    };
    let records = Supervisor::of(state)?.audit(&query).await?;
    let screen = Screen::stdout();
    if args.json {
        for record in records.iter().rev() {
            let text = serde_json::to_string(record)
                .map_err(|error| Failure::new(format!("a record cannot be shown: {error}")))?;
            screen.line(&text);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let head = format!("{:>8}  {:12}  {:15}  WHAT", "RECORD", "TIME (UTC)", "VERDICT");
    screen.line(&screen.styled(Style::Dim, &head));
    for record in records.iter().rev() {
        screen.line(&row(&screen, record));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(screen: &Screen, record: &AuditRecord) -> String {
    let (word, style) = match record.verdict {
        Verdict::Allowed => ("allowed", Style::Green),
        Verdict::Denied => ("denied", Style::Red),
        Verdict::Asked => ("asked", Style::Yellow),
        Verdict::Malformed => ("malformed", Style::Red),
        Verdict::UpstreamFailed => ("upstream-failed", Style::Yellow),
        Verdict::Granted => ("granted", Style::Cyan),
        Verdict::Observed => ("observed", Style::Yellow),
    };
    let at = record.at.strftime("%H:%M:%S%.3f");
    let what = plain::line(&what(record));
    let room = screen.width().saturating_sub(8 + 2 + 12 + 2 + 15 + 2).max(20);
    let verdict = screen.styled(style, &format!("{word:15}"));
    let first = format!(
        "{:>8}  {at:12}  {verdict}  {}",
        record.sequence,
        plain::cut(&what, room)
    );
    if record.verdict == Verdict::Allowed {
        return first;
    }
    let why = plain::line(&format!("{} (rule {})", record.reason, record.rule));
    let room = screen.width().saturating_sub(10).max(20);
    format!(
        "{first}\n{:10}{}",
        "",
        screen.styled(Style::Dim, &plain::cut(&why, room))
    )
}

/// `GET example.test/x 200`, or kind, host and port where it was no HTTP.
fn what(record: &AuditRecord) -> String {
    let place = match record.port {
        443 => record.host.clone(),
        port => format!("{}:{port}", record.host),
    };
    let mut text = match &record.method {
        Some(method) => format!("{method} {place}{}", record.path.as_deref().unwrap_or_default()),
        None if record.host.is_empty() => format!("{} {}", record.kind, record.rule).trim_end().to_owned(),
        None => format!("{} {place}", record.kind),
    };
    if let Some(status) = record.status {
        text.push_str(&format!(" {status}"));
    }
    if !record.credentials_used.is_empty() {
        text.push_str(&format!(" with {}", record.credentials_used.join(", ")));
    }
    text
}
