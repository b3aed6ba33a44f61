//! Asking a person at the terminal for what must not be seen.
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use zeroize::Zeroizing;

/// Longest line that is read, in bytes.
const LONGEST: usize = 4096;

/// One line, typed unseen; none where there is no terminal.
pub fn ask(prompt: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let Ok(mut terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    write!(terminal, "{prompt}")?;
    terminal.flush()?;
    let unseen = Unseen::begin(&terminal)?;
    // One buffer of the final size: nothing is moved and left behind.
    let mut line = Zeroizing::new(Vec::with_capacity(LONGEST));
    let mut reader = BufReader::with_capacity(1, &terminal);
    io::Read::take(&mut reader, LONGEST as u64).read_until(b'\n', &mut line)?;
    drop(reader);
    drop(unseen);
    writeln!(terminal)?;
    Ok((!line.is_empty()).then_some(line))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Unseen<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Unseen<'t> {
    fn begin(terminal: &'t File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ICANON);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing anyway.
        let _gone = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}
