//! Recorded traffic for the commands that look at it: read through the gateway's own program, worked on by two threads.
use crate::cli::Failure;
use crate::state_dir::StateDir;
use crate::up::gateway_command;
use memchr::{memmem, memrchr};
use sallyport_policy::People;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of the log that a thread works on at a time.
const PIECE: usize = 1024 * 1024;
/// Longest line of a log that makes sense.
const LINE_LIMIT: usize = 64 * PIECE;
/// Threads that read records and decide.
const WORKERS: usize = 2;
/// Pieces that wait for a thread.
const WAITING: usize = 2;

/// Which records.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Span {
    /// Only traffic of this time or later: how long ago (`12h`, `7d`), or a time such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = time)]
    pub(super) since: jiff::Timestamp,
    /// Only traffic of before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) until: Option<jiff::Timestamp>,
    /// Only this run
    #[arg(long, value_name = "ID")]
    pub(super) run: Option<String>,
}

/// How long ago, a time, or a day.
fn time(text: &str) -> Result<jiff::Timestamp, String> {
    read_time(text, jiff::Timestamp::now()).ok_or_else(|| {
        "neither how long ago, such as `12h` or `7d`, nor a time, such as `2026-01-31T00:00:00Z`".to_owned()
    })
}

fn read_time(text: &str, now: jiff::Timestamp) -> Option<jiff::Timestamp> {
    let seconds = |unit| match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(24 * 3600),
        "w" => Some(7 * 24 * 3600),
        _ => None,
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if let (Ok(count), Some(unit)) = (text[..digits].parse::<i64>(), seconds(&text[digits..])) {
        let ago = jiff::SignedDuration::from_secs(count.checked_mul(unit)?);
        return now.checked_sub(ago).ok();
    }
    if let Ok(day) = text.parse::<jiff::civil::Date>()
        && text.len() == "2026-01-31".len()
    {
        return Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp());
    }
    text.parse().ok()
}

/// Hands the records of a span to `work`, some lines at a time on two threads, and what it makes of them to `take`, in the
/// log's order. `work` is also told whose the sessions before those lines are.
pub(super) fn fold<T: Send>(
    state: &StateDir,
    span: &Span,
    work: impl Fn(&str, &People) -> T + Sync,
    take: impl FnMut(T),
) -> Result<(), Failure> {
    let mut child = start(state, span)?;
    let Some(out) = child.stdout.take() else {
        return Err(Failure::new("`sallyport-gateway` has no standard output"));
    };
    let read = spread(out, &work, take);
    finish(child, read)
}

fn start(state: &StateDir, span: &Span) -> Result<Child, Failure> {
    let mut command: Command = gateway_command(state)?.into_std();
    command.args(["log", "records", "--since", &span.since.to_string()]);
    if let Some(until) = span.until {
        command.args(["--until", &until.to_string()]);
    }
    if let Some(run) = &span.run {
        command.args(["--run", run]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::new(format!("`sallyport-gateway` cannot be started: {error}")))
}

/// Half a log is no answer.
fn finish(mut child: Child, read: Result<(), Failure>) -> Result<(), Failure> {
    if read.is_err() {
        // It has ended already, or is of no use any more.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .map_err(|error| Failure::new(format!("`sallyport-gateway` cannot be waited for: {error}")))?;
    read?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the network log was not read to its end ({status})"
    )))
}

type Piece = (String, People);

fn spread<T: Send>(
    out: impl Read + Send,
    work: &(impl Fn(&str, &People) -> T + Sync),
    mut take: impl FnMut(T),
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let mut inputs = Vec::new();
        let mut results: Vec<Receiver<T>> = Vec::new();
        for _ in 0..WORKERS {
            let (input, pieces) = sync_channel::<Piece>(WAITING);
            let (done, result) = sync_channel(WAITING);
            inputs.push(input);
            results.push(result);
            scope.spawn(move || {
                for (lines, people) in pieces {
                    if done.send(work(&lines, &people)).is_err() {
                        return;
                    }
                }
            });
        }
        let reader = scope.spawn(move || read(out, &inputs));
        // Pieces went round, so results come back round.
        for result in results.iter().cycle() {
            match result.recv() {
                Ok(done) => take(done),
                Err(_) => break,
            }
        }
        reader
            .join()
            .unwrap_or_else(|_| Err(Failure::new("reading the network log failed")))
    })
}

/// Cuts what is read at line ends and sends the pieces round; notes whose the sessions are on the way.
fn read(mut out: impl Read, inputs: &[SyncSender<Piece>]) -> Result<(), Failure> {
    let mark = memmem::Finder::new(People::MARK);
    let mut people = People::default();
    let mut rest: Vec<u8> = Vec::new();
    for input in inputs.iter().cycle() {
        let mut piece = std::mem::take(&mut rest);
        let ended = fill(&mut out, &mut piece)?;
        if !ended {
            let end = memrchr(b'\n', &piece).map_or(0, |at| at + 1);
            rest = piece.split_off(end);
        }
        if !piece.is_empty() {
            let text = String::from_utf8(piece)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
            let before = people.clone();
            meet(&text, &mark, &mut people);
            if input.send((text, before)).is_err() {
                return Ok(());
            }
        }
        if ended {
            break;
        }
    }
    Ok(())
}

/// Reads a piece with at least one line end in it; true at the end of the log.
fn fill(out: &mut impl Read, piece: &mut Vec<u8>) -> Result<bool, Failure> {
    loop {
        let wanted = PIECE as u64;
        let count = out
            .by_ref()
            .take(wanted)
            .read_to_end(piece)
            .map_err(|error| Failure::new(format!("the network log cannot be read: {error}")))?;
        if (count as u64) < wanted {
            return Ok(true);
        }
        if memrchr(b'\n', piece).is_some() {
            return Ok(false);
        }
        if piece.len() > LINE_LIMIT {
            return Err(Failure::new(
                "the network log has a line that does not end; run `sallyport log verify`",
            ));
        }
    }
}

fn meet(text: &str, mark: &memmem::Finder<'_>, people: &mut People) {
    for at in mark.find_iter(text.as_bytes()) {
        let from = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let to = text[at..].find('\n').map_or(text.len(), |end| at + end);
        people.meet(&text[from..to]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_by_how_long_ago_by_day_or_whole() {
        let now = "2026-05-08T12:00:00Z".parse().unwrap();
        let at = |text: &str| read_time(text, now).map(|at| at.to_string());
        assert_eq!(at("7d").as_deref(), Some("2026-05-01T12:00:00Z"));
        assert_eq!(at("90m").as_deref(), Some("2026-05-08T10:30:00Z"));
        assert_eq!(at("2026-05-02").as_deref(), Some("2026-05-02T00:00:00Z"));
        assert_eq!(
            at("2026-05-02T03:00:00+02:00").as_deref(),
            Some("2026-05-02T01:00:00Z")
        );
        for text in ["", "7", "d", "7y", "-7d", "yesterday", "99999999999999w", "ü"] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn every_line_is_worked_on_once_and_comes_back_in_order() {
        let log: String = (0..200_000).map(|number| format!("{number:020}\n")).collect();
        let mut lines = Vec::new();
        let split = |lines: &str, _: &People| lines.lines().map(str::to_owned).collect::<Vec<_>>();
        spread(log.as_bytes(), &split, |some| lines.extend(some)).unwrap();
        assert_eq!(lines.len(), 200_000);
        assert!(lines.is_sorted());
        let mut last = Vec::new();
        spread(&b"a\nb"[..], &split, |some| last.extend(some)).unwrap();
        assert_eq!(last, ["a", "b"], "a last line needs no end");
        spread(&b""[..], &split, |_| panic!("nothing is there")).unwrap();
    }
}
