//! Fills an audit log with made-up traffic of a week, by the gateway's own store: `fill-log STATE-DIRECTORY [RECORDS]`.
//!
//! For measuring what reads logs. The directory is a gateway's, such as `gateway` in that of a supervisor.
use anyhow::Context;
use sallyport_gateway::audit::Sink;
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use sallyport_policy::{Reason, Refusal, Remedy, Who};
use std::path::Path;

const SESSIONS: u64 = 60;
const HOSTS: u64 = 240;
const WEEK_MS: i64 = 6 * 24 * 3600 * 1000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .context("usage: fill-log STATE-DIRECTORY [RECORDS]")?;
    let count: u64 = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    std::fs::create_dir_all(&folder)?;
    let sink = Sink::open(Path::new(&folder))?;
    let begin = jiff::Timestamp::now().as_millisecond() - WEEK_MS;
    for session in 0..SESSIONS {
        sink.note(opening(session, begin)?).await?;
    }
    let mut dice = Dice(1);
    for number in 0..count - SESSIONS {
        let passed = i64::try_from(number * WEEK_MS.unsigned_abs() / count)?;
        sink.note(request(number, begin + passed, &mut dice)?).await?;
    }
    sink.flush().await?;
    Ok(())
}

/// A linear congruential generator (Knuth, MMIX): the same log each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn opening(session: u64, at: i64) -> anyhow::Result<AuditRecord> {
    let name = format!("run-{session}");
    Ok(AuditRecord {
        kind: "session".to_owned(),
        who: Some(Box::new(Who {
            run: name.clone(),
            user: format!("user-{}", session % 7),
            team: ["web", "data", "infra"][(session % 3) as usize].to_owned(),
            repository: format!("acme/repository-{}", session % 11),
            ..Who::default()
        })),
        ..blank(format!("session-{session}"), at, name)?
    })
}

/// Nine of ten read, one of thirty is refused.
fn request(number: u64, at: i64, dice: &mut Dice) -> anyhow::Result<AuditRecord> {
    let host = format!("host-{}.example", dice.below(HOSTS));
    let session = dice.below(SESSIONS);
    let path = match dice.below(4) {
        0 => format!("/packages/p-{}/{}.tar.gz", dice.below(5000), dice.below(90)),
        1 => format!(
            "/repos/acme/repository-{}/issues/{}",
            dice.below(11),
            dice.below(9000)
        ),
        2 => format!(
            "/v1/objects/{:016x}{:016x}",
            dice.below(u64::MAX),
            dice.below(u64::MAX)
        ),
        _ => "/v1/messages".to_owned(),
    };
    let method = if dice.below(10) == 0 { "POST" } else { "GET" };
    let subject = format!("`{method} https://{host}{path}`");
    let denied = dice.below(30) == 0;
    let (rule, text) = match denied {
        true => ("default", format!("no rule allows {subject}")),
        false => ("read", format!("rule `read` allows {subject}")),
    };
    let refusal = Refusal {
        reason: Reason {
            rule: rule.to_owned(),
            text: text.clone(),
        },
        remedy: Remedy::None,
        hint: None,
    };
    let id = format!(
        "0198a0c4-{:04x}-7{:03x}-8000-{number:012x}",
        number % 65_536,
        number % 4096
    );
    Ok(AuditRecord {
        user: format!("user-{}", session % 7),
        kind: "http".to_owned(),
        host,
        port: 443,
        method: Some(method.to_owned()),
        path: Some(path),
        verdict: if denied { Verdict::Denied } else { Verdict::Allowed },
        rule: rule.to_owned(),
        reason: text,
        refusal: denied.then_some(refusal),
        status: Some(if denied { 403 } else { 200 }),
        bytes_in: dice.below(100_000),
        duration_ms: dice.below(900),
        tls: Some(true),
        ..blank(id, at, format!("run-{session}"))?
    })
}

fn blank(id: String, at: i64, session: String) -> anyhow::Result<AuditRecord> {
    Ok(AuditRecord {
        id,
        at: jiff::Timestamp::from_millisecond(at)?,
        session,
        policy_hash: "a3f1c2d4e5b6978812345678901234567890abcdefabcdefabcdefabcdef0123".to_owned(),
        ending: "complete".to_owned(),
        ..AuditRecord::of("", Verdict::Allowed)
    })
}
