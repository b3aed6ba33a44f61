//! Tools that run beside each other, told one after the other: the first call's output as it comes, the others' when
//! it is their turn.
use std::collections::VecDeque;

/// Lines of a tool's output that are shown.
const OUTPUT_LINES: usize = 12;
/// Longest line that is waited for, in bytes.
const LINE_LIMIT: usize = 4096;

/// Something to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// What follows belongs to this call, whose head stands further up.
    Head(String),
    /// A line of output.
    Line(String),
    /// So many lines are left out.
    More(usize),
    /// It failed; the last line of its result.
    Failed(String),
}

#[derive(Debug)]
struct Call {
    id: String,
    head: String,
    lines: usize,
    partial: String,
    /// What waits to be shown.
    waiting: Vec<Shown>,
    over: bool,
}

/// The calls whose results are not shown yet, in their order.
#[derive(Debug, Default)]
pub(super) struct Tools {
    calls: VecDeque<Call>,
    /// The call that was told of last.
    told: String,
}

impl Tools {
    /// A call whose head was just shown.
    pub(super) fn call(&mut self, id: &str, head: String) {
        self.told = id.to_owned();
        self.calls.push_back(Call {
            id: id.to_owned(),
            head,
            lines: 0,
            partial: String::new(),
            waiting: Vec::new(),
            over: false,
        });
    }

    /// A piece of output; gives what can be shown now.
    pub(super) fn output(&mut self, id: &str, text: &str) -> Vec<Shown> {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
            call.partial.push_str(text);
            while let Some(end) = call.partial.find('\n') {
                let line: String = call.partial.drain(..=end).collect();
                call.line(line.trim_end_matches(['\n', '\r']));
            }
            if call.partial.len() > LINE_LIMIT {
                let line = std::mem::take(&mut call.partial);
                call.line(&line);
            }
        }
        self.due()
    }

    /// A result; gives what can be shown now.
    pub(super) fn result(&mut self, id: &str, text: &str, ok: bool) -> Vec<Shown> {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
            call.end(text, ok);
        }
        self.due()
    }

    /// What the calls of an attempt that is void would still have said is dropped.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    fn due(&mut self) -> Vec<Shown> {
        let mut due = Vec::new();
        while let Some(first) = self.calls.front_mut() {
            if !first.waiting.is_empty() && self.told != first.id {
                due.push(Shown::Head(first.head.clone()));
                self.told.clone_from(&first.id);
            }
            due.append(&mut first.waiting);
            if !first.over {
                break;
            }
            self.calls.pop_front();
        }
        due
    }
}

impl Call {
    fn line(&mut self, line: &str) {
        self.lines += 1;
        if self.lines <= OUTPUT_LINES {
            self.waiting.push(Shown::Line(line.to_owned()));
        }
    }

    fn end(&mut self, text: &str, ok: bool) {
        let partial = std::mem::take(&mut self.partial);
        if !partial.is_empty() {
            self.line(&partial);
        }
        if self.lines == 0 {
            for line in text.lines() {
                self.line(line);
            }
        }
        if self.lines > OUTPUT_LINES {
            self.waiting.push(Shown::More(self.lines - OUTPUT_LINES));
        }
        if !ok {
            let last = text.lines().rfind(|line| !line.trim().is_empty());
            self.waiting
                .push(Shown::Failed(last.unwrap_or("failed").to_owned()));
        }
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Shown {
        Shown::Line(text.to_owned())
    }

    #[test]
    fn a_lines_end_is_waited_for_and_long_output_is_cut() {
        let mut tools = Tools::default();
        tools.call("a", "bash".to_owned());
        assert_eq!(tools.output("a", "one\ntw"), [line("one")]);
        assert_eq!(tools.output("a", "o\r\n"), [line("two")]);
        let many = "x\n".repeat(20);
        assert_eq!(tools.output("a", &many).len(), OUTPUT_LINES - 2);
        let end = tools.result("a", "no\nwhy\n", false);
        assert_eq!(end, [Shown::More(10), Shown::Failed("why".to_owned())]);
    }

    #[test]
    fn calls_beside_each_other_are_told_one_after_the_other() {
        let mut tools = Tools::default();
        tools.call("a", "first".to_owned());
        tools.call("b", "second".to_owned());
        assert_eq!(tools.output("b", "b1\n"), []);
        assert_eq!(
            tools.output("a", "a1\n"),
            [Shown::Head("first".to_owned()), line("a1")]
        );
        assert_eq!(tools.result("b", "b1", true), []);
        let rest = [line("a2"), Shown::Head("second".to_owned()), line("b1")];
        assert_eq!(tools.output("a", "a2").len(), 0);
        assert_eq!(tools.result("a", "a", true), rest);
    }

    #[test]
    fn a_result_without_output_is_shown_itself_and_an_unknown_call_is_nothing() {
        let mut tools = Tools::default();
        tools.call("a", "bash".to_owned());
        assert_eq!(tools.result("a", "quiet", true), [line("quiet")]);
        assert_eq!(tools.output("x", "y\n"), []);
    }
}
