//! A conversation on the terminal: text as it streams, tool calls, the head of their output, refusals and grants.
mod tools;

use super::client::Supervisor;
use super::screen::Style;
use super::{Failure, RETRY_LATER, Screen, plain};
use crate::conversation::{Entry, What};
use crate::runs::{Outcome, RunState};
use std::ops::ControlFlow;
use std::time::Duration;
use tools::{Shown, Tools};

/// How often a supervisor that went away is looked for before giving up.
const RECONNECTS: usize = 120;

/// Shows entries in order.
#[derive(Debug)]
pub(super) struct Teller {
    screen: Screen,
    /// Step and attempt whose text is on the screen already, unfinished.
    streaming: Option<(u32, u32)>,
    tools: Tools,
}

impl Teller {
    pub(super) fn new(screen: Screen) -> Self {
        Self {
            screen,
            streaming: None,
            tools: Tools::default(),
        }
    }

    pub(super) fn tell(&mut self, entry: &Entry) {
        match &entry.what {
            What::Delta { text } => return self.delta(entry, text),
            What::Said { text } => return self.said(entry, text),
            _ => self.end_stream(),
        }
        match &entry.what {
            What::Person { user, text } => {
                self.labelled(Style::Bold, &plain::line(user), text);
            }
            What::Call { call, tool, input } => {
                let (label, what) = (format!("▸ {}", plain::line(tool)), summary(input));
                self.labelled(Style::Cyan, &label, &what);
                self.tools.call(call, format!("{label}  {what}"));
            }
            What::Output { call, text } => {
                let due = self.tools.output(call, text);
                self.show(due);
            }
            What::Result { call, text, ok } => {
                let due = self.tools.result(call, text, *ok);
                self.show(due);
            }
            What::Refused { notice } => {
                self.labelled(Style::Red, "✗ refused", &notice.what);
                self.indented(Style::Plain, &notice.reason);
                self.indented(Style::Yellow, &format!("→ {}", notice.remedy));
            }
            What::Access {
                why, granted, text, ..
            } => {
                let (style, head) = if *granted {
                    (Style::Green, "✓ granted")
                } else {
                    (Style::Yellow, "✗ not granted")
                };
                self.labelled(style, head, text);
                self.indented(Style::Dim, &format!("the agent's reason: {why}"));
            }
            What::Rewind { why, .. } => {
                self.tools.clear();
                self.labelled(
                    Style::Yellow,
                    "↺",
                    &format!("attempt broke off ({why}); what follows replaces it"),
                );
            }
            What::Note { text } => self.labelled(Style::Dim, "·", text),
            What::Ended { outcome, text } => {
                let (style, head) = match outcome {
                    Outcome::Done => (Style::Green, "■ done"),
                    Outcome::Failed => (Style::Red, "■ failed"),
                    Outcome::Stopped => (Style::Yellow, "■ stopped"),
                };
                self.labelled(style, head, text);
            }
            What::Delta { .. } | What::Said { .. } => {}
        }
    }

    fn delta(&mut self, entry: &Entry, text: &str) {
        let now = (entry.step, entry.attempt);
        if self.streaming != Some(now) {
            self.end_stream();
            self.streaming = Some(now);
        }
        self.screen.raw(&plain::block(text));
    }

    fn said(&mut self, entry: &Entry, text: &str) {
        if self.streaming == Some((entry.step, entry.attempt)) {
            return self.end_stream();
        }
        self.end_stream();
        if !text.is_empty() {
            self.screen.line(&plain::block(text));
        }
    }

    fn end_stream(&mut self) {
        if self.streaming.take().is_some() {
            self.screen.line("");
        }
    }

    fn show(&self, due: Vec<Shown>) {
        for one in due {
            match one {
                Shown::Head(head) => {
                    let head = plain::cut(&plain::line(&head), self.screen.width());
                    self.screen.line(&self.screen.styled(Style::Dim, &head));
                }
                Shown::Line(line) => self.indented(Style::Dim, &line),
                Shown::More(lines) => self.indented(Style::Dim, &format!("… {lines} more lines")),
                Shown::Failed(why) => self.indented(Style::Red, &format!("✗ {why}")),
            }
        }
    }

    fn labelled(&self, style: Style, label: &str, text: &str) {
        self.screen.line(&format!(
            "{}  {}",
            self.screen.styled(style, label),
            plain::block(text.trim_end())
        ));
    }

    fn indented(&self, style: Style, text: &str) {
        let room = self.screen.width().saturating_sub(4);
        let text = plain::cut(&plain::line(text), room.max(20) * 3);
        self.screen
            .line(&format!("  {}", self.screen.styled(style, &text)));
    }
}

/// The one thing of a tool's input that tells most, else all of it.
fn summary(input: &serde_json::Value) -> String {
    let text = |name: &str| input.get(name).and_then(serde_json::Value::as_str);
    if let Some(host) = text("host") {
        let method = text("method")
            .map(|method| format!("{method} "))
            .unwrap_or_default();
        let port = input
            .get("port")
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        return format!("{method}{host}{port}{}", text("path").unwrap_or_default());
    }
    let fields = ["command", "path", "text", "summary"];
    let telling = fields
        .iter()
        .find_map(|name| input.get(name).and_then(serde_json::Value::as_str));
    let text = telling.map_or_else(|| input.to_string(), str::to_owned);
    plain::cut(&text, 2000)
}

/// Hands every entry to `each` until the run has ended; comes back by itself after a restart of the supervisor.
pub(super) async fn follow_to_end(
    supervisor: &Supervisor,
    run: &str,
    each: &mut impl FnMut(&Entry),
) -> Result<Outcome, Failure> {
    let mut last = 0;
    let mut failures = 0;
    loop {
        let mut ended = None;
        let read = supervisor
            .follow(run, last, |entry| {
                last = entry.sequence;
                failures = 0;
                each(&entry);
                match entry.what {
                    What::Ended { outcome, .. } => {
                        ended = Some(outcome);
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                }
            })
            .await;
        if let Some(outcome) = ended {
            return Ok(outcome);
        }
        match read.and(supervisor.run(run).await.map(|run| run.state)) {
            Ok(RunState::Ended { outcome, .. }) => return Ok(outcome),
            Ok(_) => {}
            Err(failure) if failures >= RECONNECTS || !supervisor_is_missing(&failure) => {
                return Err(failure);
            }
            Err(_) => {}
        }
        failures += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn supervisor_is_missing(failure: &Failure) -> bool {
    failure.code() == RETRY_LATER
}

#[cfg(test)]
mod tests {
    use super::summary;
    use serde_json::json;

    #[test]
    fn a_call_is_summed_up_by_what_tells_most() {
        assert_eq!(summary(&json!({"command": "ls", "timeout": 3})), "ls");
        assert_eq!(summary(&json!({"x": 1})), "{\"x\":1}");
    }
}
