//! Writing to the terminal: whole lines through a locked writer, text of others always escaped.
use std::io::{IsTerminal as _, Write as _};

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

/// A stream of the terminal, with its abilities.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    stream: Stream,
    colour: bool,
    width: usize,
}

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
    /// Good.
    Green,
    /// Bad.
    Red,
    /// Needs a look.
    Yellow,
    /// A name.
    Cyan,
}

impl Screen {
    /// Standard output.
    pub fn stdout() -> Self {
        Self::of(
            Stream::Out,
            std::io::stdout().is_terminal(),
            rustix::stdio::stdout(),
        )
    }

    /// Standard error.
    pub fn stderr() -> Self {
        Self::of(
            Stream::Err,
            std::io::stderr().is_terminal(),
            rustix::stdio::stderr(),
        )
    }

    fn of(stream: Stream, terminal: bool, fd: rustix::fd::BorrowedFd<'_>) -> Self {
        let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let columns = terminal.then(|| rustix::termios::tcgetwinsize(fd).ok()).flatten();
        let width = columns
            .map(|size| usize::from(size.ws_col))
            .filter(|&width| width >= 20);
        Self {
            stream,
            colour: terminal && !quiet,
            width: width.unwrap_or(if terminal { 80 } else { 160 }),
        }
    }

    /// Columns of the terminal; 160 where there is none.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Writes a line. A reader that went away is no error of ours: it wanted no more.
    pub fn line(&self, text: &str) {
        self.raw(&format!("{text}\n"));
    }

    /// Writes text as it is, without a line break.
    pub fn raw(&self, text: &str) {
        let written = match self.stream {
            Stream::Out => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Stream::Err => std::io::stderr().lock().write_all(text.as_bytes()),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "nobody reads the output");
        }
    }

    /// Dresses text (escaped already) for this stream.
    pub fn styled(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Dim => "2",
            Style::Bold => "1",
            Style::Green => "32",
            Style::Red => "31",
            Style::Yellow => "33",
            Style::Cyan => "36",
        };
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
