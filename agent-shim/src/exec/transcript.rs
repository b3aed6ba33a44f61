//! What a command wrote: bounded in memory, whole in a file when it is long, told as head and tail.
use crate::wire::Stream;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes that are told at once, as they come.
const HEAD_BYTES: usize = 192 * 1024;
/// Bytes at the end that are kept back and told when the command ends.
const TAIL_BYTES: usize = 64 * 1024;
/// Longest file for the whole output.
const FILE_BYTES: u64 = 256 * 1024 * 1024;
/// A piece counts as at least this much, so that many small ones are bounded too.
const PIECE_COST: usize = 64;

/// A piece of output.
pub(super) type Piece = (Stream, Bytes);

/// The output of one command.
#[derive(Debug)]
pub(super) struct Transcript {
    path: PathBuf,
    head: Vec<Piece>,
    head_cost: usize,
    tail: VecDeque<Piece>,
    tail_cost: usize,
    left_out: u64,
    whole: Whole,
}

#[derive(Debug)]
enum Whole {
    InMemory,
    File { file: File, bytes: u64, cut: bool },
    Failed(String),
}

impl Transcript {
    /// An empty one, whose whole goes to `path` if it becomes long.
    pub(super) fn new(path: PathBuf) -> Self {
        Transcript {
            path,
            head: Vec::new(),
            head_cost: 0,
            tail: VecDeque::new(),
            tail_cost: 0,
            left_out: 0,
            whole: Whole::InMemory,
        }
    }

    /// Takes a piece; answers it if it is to be told now.
    pub(super) fn push(&mut self, piece: Piece) -> Option<Piece> {
        let cost = cost(&piece);
        if self.tail.is_empty() && self.head_cost + cost <= HEAD_BYTES {
            self.head_cost += cost;
            self.head.push(piece.clone());
            return Some(piece);
        }
        self.tail_cost += cost;
        self.tail.push_back(piece);
        self.spill();
        while self
            .tail
            .front()
            .is_some_and(|first| self.tail_cost - first.1.len().max(PIECE_COST) >= TAIL_BYTES)
        {
            if let Some(first) = self.tail.pop_front() {
                self.tail_cost -= first.1.len().max(PIECE_COST);
                self.left_out += first.1.len() as u64;
            }
        }
        None
    }

    /// What is told at once.
    pub(super) fn head(&self) -> &[Piece] {
        &self.head
    }

    /// What is told at the end: a mark where something was left out, then the tail.
    pub(super) fn rest(&self) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.tail.len() + 1);
        if self.left_out > 0 {
            pieces.push((Stream::Out, Bytes::from(self.mark())));
        }
        pieces.extend(self.tail.iter().cloned());
        pieces
    }

    /// Where the whole lies, if not all of it is told.
    pub(super) fn full_output(&self) -> Option<String> {
        match self.whole {
            Whole::File { .. } if self.left_out > 0 => Some(self.path.display().to_string()),
            _ => None,
        }
    }

    /// Drops the pieces of a command that ended long ago.
    pub(super) fn forget(&mut self) {
        let bytes: usize = self
            .head
            .iter()
            .chain(&self.tail)
            .map(|piece| piece.1.len())
            .sum();
        self.left_out += bytes as u64;
        self.head = Vec::new();
        self.tail = VecDeque::new();
        if let Whole::InMemory = self.whole {
            self.whole = Whole::Failed("the command ended long ago".to_owned());
        }
    }

    fn mark(&self) -> String {
        let bytes = self.left_out;
        match &self.whole {
            Whole::File { cut: false, .. } => {
                format!(
                    "\n[... {bytes} bytes left out; the whole output is in {} ...]\n",
                    self.path.display()
                )
            }
            Whole::File { cut: true, .. } => format!(
                "\n[... {bytes} bytes left out; the first {FILE_BYTES} bytes are in {} ...]\n",
                self.path.display()
            ),
            Whole::InMemory => format!("\n[... {bytes} bytes left out ...]\n"),
            Whole::Failed(why) => format!("\n[... {bytes} bytes left out and not kept: {why} ...]\n"),
        }
    }

    /// Writes the newest piece to the file; all so far when the file begins.
    fn spill(&mut self) {
        if let Whole::InMemory = self.whole {
            if self.tail_cost <= TAIL_BYTES {
                return;
            }
            self.whole = match create(&self.path) {
                Ok(file) => Whole::File {
                    file,
                    bytes: 0,
                    cut: false,
                },
                Err(error) => Whole::Failed(format!("`{}`: {error}", self.path.display())),
            };
            let so_far: Vec<Piece> = self.head.iter().chain(&self.tail).cloned().collect();
            for piece in &so_far {
                self.whole.write(&piece.1);
            }
        } else if let Some(newest) = self.tail.back() {
            self.whole.write(&newest.1);
        }
    }
}

impl Whole {
    fn write(&mut self, piece: &[u8]) {
        let Whole::File { file, bytes, cut } = self else {
            return;
        };
        let room = FILE_BYTES.saturating_sub(*bytes);
        let take = piece.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        *cut |= take < piece.len();
        match file.write_all(&piece[..take]) {
            Ok(()) => *bytes += take as u64,
            Err(error) => *self = Whole::Failed(error.to_string()),
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    File::create(path)
}

fn cost(piece: &Piece) -> usize {
    piece.1.len().max(PIECE_COST)
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, TAIL_BYTES, Transcript};
    use crate::wire::Stream;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn fill(transcript: &mut Transcript, pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut told = Vec::new();
        for piece in pieces {
            let piece = (Stream::Out, Bytes::copy_from_slice(piece));
            if let Some(now) = transcript.push(piece) {
                told.extend_from_slice(&now.1);
            }
        }
        for (_, bytes) in transcript.rest() {
            told.extend_from_slice(&bytes);
        }
        told
    }

    #[test]
    fn a_long_output_is_told_as_head_mark_and_tail_and_lies_whole_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/1.log");
        let mut transcript = Transcript::new(path.clone());
        let pieces: Vec<Vec<u8>> = (0..4000u32)
            .map(|n| format!("{n:0>199}\n").into_bytes())
            .collect();
        let told = fill(&mut transcript, &pieces);
        assert_eq!(std::fs::read(&path).unwrap(), pieces.concat());
        assert_eq!(transcript.full_output(), Some(path.display().to_string()));
        let told = String::from_utf8(told).unwrap();
        assert!(told.starts_with(std::str::from_utf8(&pieces[0]).unwrap()));
        assert!(told.ends_with(std::str::from_utf8(pieces.last().unwrap()).unwrap()));
        assert!(told.contains("bytes left out; the whole output is in"));
        assert!(told.len() < HEAD_BYTES + TAIL_BYTES + 1000);
    }

    #[test]
    fn when_the_file_cannot_be_written_the_mark_says_so() {
        let mut transcript = Transcript::new("/proc/no/such.log".into());
        let told = fill(&mut transcript, &vec![vec![b'x'; 1000]; 1000]);
        assert!(
            String::from_utf8(told)
                .unwrap()
                .contains("not kept: `/proc/no/such.log`")
        );
        assert_eq!(transcript.full_output(), None);
    }

    proptest! {
        #[test]
        fn a_short_output_is_told_whole_and_makes_no_file(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 64..3000), 0..80),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("1.log");
            let mut transcript = Transcript::new(path.clone());
            let told = fill(&mut transcript, &pieces);
            prop_assert_eq!(told, pieces.concat());
            prop_assert!(!path.exists());
        }
    }
}
