//! Requests for access and refusals, in the words that an agent reads.
use sallyport_gateway::control::types::{AccessAnswer, AuditRecord};
use sallyport_policy::{Grant, GrantRefused, Refusal, Remedy, Wanted};
use sallyport_shim::wire::BlockedNotice;

/// What came of a request: whether the agent may go there now, and a sentence.
pub fn answer(wanted: &Wanted, answer: &AccessAnswer) -> (bool, String) {
    let there = format!("{}:{}", wanted.host, wanted.port);
    match answer {
        AccessAnswer::Granted { grant } => (true, granted(grant)),
        AccessAnswer::Refused {
            reason: GrantRefused::AlreadyLent { credential, host },
        } => (
            true,
            format!("credential `{credential}` may be used at `{host}` already: {FIND}"),
        ),
        AccessAnswer::Refused {
            reason: reason @ GrantRefused::NoCredential { .. },
        } => (false, format!("not granted: {reason}. {BIND}")),
        AccessAnswer::Refused {
            reason: GrantRefused::AlreadyAllowed { rule },
        } => (
            true,
            format!("`{there}` is allowed already, by rule `{rule}`: nothing had to be granted"),
        ),
        AccessAnswer::Refused {
            reason: reason @ (GrantRefused::NeedsPerson { .. } | GrantRefused::CredentialNeedsPerson { .. }),
        } => (
            false,
            format!(
                "not granted: {reason}. Nobody can be asked from here: go on without it, and say in your summary that you need it"
            ),
        ),
        AccessAnswer::Refused { reason } => (false, format!("not granted: {reason}")),
    }
}

/// Where the agent finds what stands for a credential.
const FIND: &str = "`sallyport-shim secret ls` tells which variable holds its placeholder";
/// How a person gives a run a credential that its policy lacks.
const BIND: &str = "A person can give it: with `credentials` and `use` in the policy, and its value by `sallyport secret set`; go on \
                    without it, and say in your summary that you need it";

fn granted(grant: &Grant) -> String {
    if let Some(credential) = &grant.credential {
        let Grant {
            host, by, expires_at, ..
        } = grant;
        return format!("credential `{credential}` is lent at `{host}` by {by}, until {expires_at}: {FIND}");
    }
    let methods = if grant.methods.is_empty() {
        "the rule's methods".into()
    } else {
        grant.methods.join(", ")
    };
    let path = grant
        .path
        .as_ref()
        .map_or(String::new(), |path| format!(", path `{path}`"));
    let uses = grant
        .uses
        .map_or(String::new(), |uses| format!(", {uses} requests"));
    format!(
        "`{}:{}` is granted by {}: {methods}{path}{uses}, until {}",
        grant.host, grant.port, grant.by, grant.expires_at
    )
}

/// The refusal in a record of the network log, if it tells of one, for the machine and the conversation.
pub fn notice(record: &AuditRecord) -> Option<BlockedNotice> {
    let refusal = record.refusal.as_ref()?;
    Some(BlockedNotice {
        id: record.id.clone(),
        unix_ms: record.at.as_millisecond(),
        what: tried(record),
        rule: refusal.reason.rule.clone(),
        reason: refusal.reason.text.clone(),
        remedy: remedy(record, refusal),
    })
}

fn tried(record: &AuditRecord) -> String {
    let (host, port) = (&record.host, record.port);
    match (&record.method, &record.path) {
        (Some(_), path) if record.kind == "postgres" => {
            let path = path.as_deref().unwrap_or_default();
            let (database, role) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
            format!("a log-in to database `{database}` as `{role}` at {host}:{port}")
        }
        (Some(method), path) => {
            let (scheme, usual) = if port == 80 { ("http", 80) } else { ("https", 443) };
            let port = if port == usual {
                String::new()
            } else {
                format!(":{port}")
            };
            format!(
                "{method} {scheme}://{host}{port}{}",
                path.as_deref().unwrap_or("/")
            )
        }
        (None, _) if record.kind == "dns" => format!("the name {host}"),
        (None, _) => format!("a connection to {host}:{port}"),
    }
}

fn remedy(record: &AuditRecord, refusal: &Refusal) -> String {
    let port = if record.port == 443 {
        String::new()
    } else {
        format!(" and port {}", record.port)
    };
    let mut text = match refusal.remedy {
        Remedy::None => "it cannot be asked for: do without it".to_owned(),
        Remedy::RequestAccess => format!(
            "call `request_access` with host `{}`{port}; the policy grants it at once",
            record.host
        ),
        Remedy::AskPerson => {
            "only a person may grant it: do without it, or say in your summary that you need it".to_owned()
        }
    };
    if let Some(hint) = &refusal.hint {
        text = format!("{hint} ({text})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sallyport_gateway::control::types::Verdict;
    use sallyport_policy::Reason;

    fn record(method: Option<&str>, port: u16, remedy: Remedy) -> AuditRecord {
        let reason = Reason {
            rule: "default".into(),
            text: "no rule names `other.test`".into(),
        };
        AuditRecord {
            sequence: 1,
            id: "d".into(),
            at: jiff::Timestamp::UNIX_EPOCH,
            session: "r".into(),
            user: "ada".into(),
            host: "other.test".into(),
            port,
            method: method.map(Into::into),
            path: method.map(|_| "/x".into()),
            rule: "default".into(),
            reason: reason.text.clone(),
            refusal: Some(Refusal {
                reason,
                remedy,
                hint: Some("read the mirror".into()),
            }),
            status: Some(403),
            ending: "complete".into(),
            ..AuditRecord::of("http", Verdict::Denied)
        }
    }

    #[test]
    fn a_refusal_says_what_was_tried_and_the_way_on() {
        let told = notice(&record(Some("GET"), 443, Remedy::RequestAccess)).unwrap();
        assert_eq!(told.what, "GET https://other.test/x");
        assert!(
            told.remedy.contains("read the mirror")
                && told.remedy.contains("`request_access` with host `other.test`")
        );
        let told = notice(&record(None, 22, Remedy::None)).unwrap();
        assert_eq!(told.what, "a connection to other.test:22");
        assert!(told.remedy.contains("cannot be asked for"));
    }

    #[test]
    fn a_record_without_refusal_is_no_notice() {
        let mut allowed = record(Some("GET"), 443, Remedy::None);
        allowed.refusal = None;
        assert_eq!(notice(&allowed), None);
    }

    #[test]
    fn what_is_allowed_already_counts_as_granted() {
        let wanted = Wanted {
            credential: None,
            host: "h".into(),
            port: 443,
            method: None,
            path: None,
        };
        let reason = GrantRefused::AlreadyAllowed { rule: "r".into() };
        assert!(answer(&wanted, &AccessAnswer::Refused { reason }).0);
        let reason = GrantRefused::NotGrantable { rule: "r".into() };
        assert!(!answer(&wanted, &AccessAnswer::Refused { reason }).0);
    }
}
