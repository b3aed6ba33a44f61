//! A conversation on the terminal: text as it streams, tool calls, the head of their output, refusals and grants.
use super::client::Supervisor;
use super::screen::Style;
use super::{Failure, RETRY_LATER, Screen, plain};
use crate::conversation::{Entry, What};
use crate::runs::{Outcome, RunState};
use std::ops::ControlFlow;
use std::time::Duration;

/// Lines of a tool's output that are shown.
const OUTPUT_LINES: usize = 12;
/// How often a supervisor that went away is looked for before giving up.
const RECONNECTS: usize = 120;

/// Shows entries in order.
#[derive(Debug)]
pub(super) struct Teller {
    screen: Screen,
    /// Step and attempt whose text is on the screen already, unfinished.
    streaming: Option<(u32, u32)>,
    /// Lines of the running tool's output shown so far.
    shown: usize,
    /// What the running tool wrote last, not yet a whole line.
    partial: String,
}

impl Teller {
    pub(super) fn new(screen: Screen) -> Self {
        Self {
            screen,
            streaming: None,
            shown: 0,
            partial: String::new(),
        }
    }

    pub(super) fn tell(&mut self, entry: &Entry) {
        match &entry.what {
            What::Delta { text } => return self.delta(entry, text),
            What::Said { text } => return self.said(entry, text),
            What::Output { text, .. } => return self.output(text),
            _ => self.end_stream(),
        }
        match &entry.what {
            What::Person { user, text } => {
                self.labelled(Style::Bold, &plain::line(user), text);
            }
            What::Call { tool, input, .. } => {
                self.shown = 0;
                self.partial.clear();
                let head = format!("▸ {}", plain::line(tool));
                self.labelled(Style::Cyan, &head, &summary(input));
            }
            What::Result { text, ok, .. } => self.result(text, *ok),
            What::Refused { notice } => {
                self.labelled(Style::Red, "✗ refused", &notice.what);
                self.indented(Style::Plain, &format!("{} (rule {})", notice.reason, notice.rule));
                self.indented(Style::Yellow, &format!("→ {}", notice.remedy));
            }
            What::Access {
                wanted,
                why,
                granted,
                text,
            } => {
                let (style, head) = if *granted {
                    (Style::Green, "✓ granted")
                } else {
                    (Style::Yellow, "✗ not granted")
                };
                self.labelled(style, head, &format!("{}:{}: {text}", wanted.host, wanted.port));
                self.indented(Style::Dim, &format!("the agent's reason: {why}"));
            }
            What::Rewind { why, .. } => {
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
            What::Delta { .. } | What::Said { .. } | What::Output { .. } => {}
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

    fn output(&mut self, text: &str) {
        self.end_stream();
        self.partial.push_str(text);
        while let Some(end) = self.partial.find('\n') {
            let line: String = self.partial.drain(..=end).collect();
            self.output_line(line.trim_end_matches(['\n', '\r']));
        }
        if self.partial.len() > 4096 {
            let line = std::mem::take(&mut self.partial);
            self.output_line(&line);
        }
    }

    fn output_line(&mut self, line: &str) {
        self.shown += 1;
        if self.shown <= OUTPUT_LINES {
            self.indented(Style::Dim, line);
        }
    }

    fn result(&mut self, text: &str, ok: bool) {
        let partial = std::mem::take(&mut self.partial);
        if !partial.is_empty() {
            self.output_line(&partial);
        }
        if self.shown == 0 {
            for line in text.lines() {
                self.output_line(line);
            }
        }
        if self.shown > OUTPUT_LINES {
            self.indented(Style::Dim, &format!("… {} more lines", self.shown - OUTPUT_LINES));
        }
        if !ok {
            let last = text
                .lines()
                .rfind(|line| !line.trim().is_empty())
                .unwrap_or("failed");
            self.indented(Style::Red, &format!("✗ {last}"));
        }
        self.shown = 0;
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
    let fields = ["command", "cmd", "path", "host", "text"];
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
