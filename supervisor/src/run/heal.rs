//! Refusals and news as the model reads them: what, which rule, why, and the way on. Bounded and without repeats.
use crate::run::state::Inbox;
use sallyport_shim::wire::BlockedNotice;

/// Different refusals told at once; more are counted.
const LISTED: usize = 20;
/// Bytes of each field of a refusal, which the agent can choose in part.
const FIELD: usize = 400;

/// Takes a refusal in. Equal ones (same attempt, same rule) are counted, not repeated.
pub fn receive(inbox: &mut Inbox, notice: &BlockedNotice) {
    let known = inbox
        .refusals
        .iter_mut()
        .find(|(known, _)| known.what == notice.what && known.rule == notice.rule);
    if let Some((_, count)) = known {
        *count = count.saturating_add(1);
    } else if inbox.refusals.len() < LISTED {
        inbox.refusals.push((notice.clone(), 1));
    } else {
        inbox.unlisted = inbox.unlisted.saturating_add(1);
    }
}

/// Empties the inbox into texts for the next message, most urgent first.
pub fn tell(inbox: &mut Inbox) -> Vec<String> {
    let inbox = std::mem::take(inbox);
    let mut texts = Vec::new();
    if !inbox.news.is_empty() {
        texts.push(inbox.news.join("\n"));
    }
    if !inbox.refusals.is_empty() {
        texts.push(refusals(&inbox));
    }
    for (user, text) in inbox.said {
        texts.push(format!("Message from {user}:\n{text}"));
    }
    texts
}

fn refusals(inbox: &Inbox) -> String {
    let mut text = String::from("The gateway refused these since your last step:\n");
    for (notice, count) in &inbox.refusals {
        let times = if *count > 1 {
            format!(" ({count} times)")
        } else {
            String::new()
        };
        text.push_str(&format!(
            "- {}{times}\n  rule: {}\n  reason: {}\n  what you can do: {}\n  decision: {}\n",
            cut(&notice.what),
            cut(&notice.rule),
            cut(&notice.reason),
            cut(&notice.remedy),
            cut(&notice.id),
        ));
    }
    if inbox.unlisted > 0 {
        text.push_str(&format!("- and {} more\n", inbox.unlisted));
    }
    text
}

/// A field on one line, bounded.
fn cut(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        if line.len() >= FIELD {
            line.push('…');
            break;
        }
        line.push(if character.is_control() { ' ' } else { character });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(what: &str) -> BlockedNotice {
        BlockedNotice {
            id: "d-1".into(),
            unix_ms: 0,
            what: what.into(),
            rule: "default".into(),
            reason: "no rule names `other.test`".into(),
            remedy: "call `request_access`".into(),
        }
    }

    #[test]
    fn a_refusal_is_told_with_rule_reason_and_remedy_and_only_once() {
        let mut inbox = Inbox::default();
        receive(&mut inbox, &notice("GET https://other.test/x"));
        receive(&mut inbox, &notice("GET https://other.test/x"));
        let text = tell(&mut inbox).join("\n");
        for part in [
            "GET https://other.test/x (2 times)",
            "default",
            "no rule names",
            "request_access",
            "d-1",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(tell(&mut inbox).is_empty());
    }

    #[test]
    fn a_flood_of_refusals_stays_small_and_says_how_many_there_were() {
        let mut inbox = Inbox::default();
        for number in 0..1000 {
            receive(
                &mut inbox,
                &notice(&format!(
                    "GET https://h{number}.test/{}\n- forged",
                    "x".repeat(10_000)
                )),
            );
        }
        let text = tell(&mut inbox).join("\n");
        assert!(text.len() < 40_000, "{} bytes", text.len());
        assert!(text.contains("and 980 more"));
        assert!(!text.contains("\n- forged"));
    }
}
