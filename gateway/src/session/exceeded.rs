//! What is said when more was asked for than a rule lets pass.
use sallyport_policy::{Rate, Reason, Refusal, Remedy};
use std::time::Duration;

/// The bound that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Requests and streams under way.
    Connections,
    /// Requests and streams begun.
    Rate,
    /// Body bytes of one request.
    RequestBytes,
    /// Body bytes of the whole run.
    BytesOut,
    /// Body bytes of one answer.
    ResponseBytes,
}

/// More than a rule lets pass. The agent's to heed; a retry helps for `Connections` and `Rate`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Exceeded {
    /// Id of the rule that sets the bound.
    pub rule: String,
    /// Which of its bounds.
    pub bound: Bound,
    /// What passes, and what to do about it.
    pub sentence: String,
    /// Whole seconds after which the same passes, where that is known.
    pub retry_after_s: Option<u64>,
}

impl Exceeded {
    /// As a refusal of the rule. Asking for access changes nothing about it.
    pub fn refusal(&self) -> Refusal {
        Refusal {
            reason: Reason {
                rule: self.rule.clone(),
                text: self.sentence.clone(),
            },
            remedy: Remedy::None,
            hint: None,
        }
    }

    pub(super) fn connections(rule: &str, most: u32) -> Self {
        let most = counted(u64::from(most), "request");
        Self::new(
            rule,
            Bound::Connections,
            format!("rule `{rule}` lets {most} be under way at once; try again when one has ended"),
        )
    }

    pub(super) fn rate(rule: &str, rate: Rate, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let many = counted(u64::from(rate.count), "request");
        let sentence = format!(
            "rule `{rule}` lets {many} {} pass; try again in {seconds} s",
            per(rate.seconds)
        );
        Self {
            retry_after_s: Some(seconds),
            ..Self::new(rule, Bound::Rate, sentence)
        }
    }

    /// `length`: of the body, where it was announced.
    pub(super) fn request_bytes(rule: &str, most: u64, length: Option<u64>) -> Self {
        let (most, length) = (counted(most, "byte"), length_text(length));
        Self::new(
            rule,
            Bound::RequestBytes,
            format!(
                "rule `{rule}` lets a request have {most} of body, and this one has {length}; send it in smaller parts"
            ),
        )
    }

    /// `next`: how much would be sent, where it is known.
    pub(super) fn bytes_out(rule: &str, most: u64, left: u64, next: Option<u64>) -> Self {
        let most = counted(most, "byte");
        let sentence = match (left, next) {
            (1.., Some(next)) => format!(
                "rule `{rule}` lets {most} out in the whole run; what is left is {left}, and this would send {next}"
            ),
            _ => format!("rule `{rule}` lets {most} out in the whole run, and they are used up"),
        };
        Self::new(rule, Bound::BytesOut, sentence)
    }

    pub(super) fn unwritten(rule: &str) -> Self {
        Self::new(
            rule,
            Bound::BytesOut,
            format!(
                "rule `{rule}` counts what goes out in the whole run, and the gateway cannot write the count down; try again later"
            ),
        )
    }

    /// `length`: of the body, where it was announced.
    pub(super) fn response_bytes(rule: &str, most: u64, length: Option<u64>) -> Self {
        let (most, length) = (counted(most, "byte"), length_text(length));
        Self::new(
            rule,
            Bound::ResponseBytes,
            format!(
                "rule `{rule}` lets an answer have {most} of body, and this one has {length}; ask for a part of it"
            ),
        )
    }

    fn new(rule: &str, bound: Bound, sentence: String) -> Self {
        Self {
            rule: rule.to_owned(),
            bound,
            sentence,
            retry_after_s: None,
        }
    }
}

fn length_text(length: Option<u64>) -> String {
    length.map_or_else(|| "more".to_owned(), |length| length.to_string())
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn per(seconds: u32) -> String {
    match seconds {
        1 => "a second".to_owned(),
        60 => "a minute".to_owned(),
        3600 => "an hour".to_owned(),
        other => format!("in {other} s"),
    }
}
