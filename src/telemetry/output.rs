//! Where lines go. A reader that is slow holds its writers back for a moment; one that has stopped reading stops nobody: a pipe holds
//! 64 KiB, and whoever writes into a full one waits until the end of time, in our case with a lock that everyone else needs to log.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A reader that takes nothing for so long has stopped: a collector that is restarted is back, or its pipe is closed.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// After a loss nobody waits again for so long: a reader that takes a line now and then must not set the service's pace.
const IMPATIENT: Duration = Duration::from_secs(10);
/// What a pipe takes without waiting once it says that it is ready (POSIX, `PIPE_BUF`; Linux keeps pages).
const PIECE: usize = 4_096;

static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines of this process that found no room.
pub(crate) fn lines_lost() -> u64 {
    LOST.load(Relaxed)
}

/// A stream of lines.
pub(crate) struct Output<F> {
    stream: F,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Lines that were lost and not told of.
    untold: u64,
    /// The last line broke off in its middle.
    torn: bool,
    impatient_until: Option<Instant>,
}

impl<F: AsFd> Output<F> {
    pub(crate) fn new(stream: F) -> Self {
        Self { stream, state: Mutex::default() }
    }

    /// Writes a line, its end included; before it, `told` of how many were lost since the last one that was not.
    ///
    /// # Errors
    /// Nobody will ever read it, or nobody reads now. Either way the line is lost.
    pub(crate) fn write(&self, line: &str, told: impl Fn(u64) -> String) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.untold > 0 {
            let notice = told(state.untold);
            if self.put(&mut state, &notice).is_ok() {
                state.untold = 0;
            }
        }
        self.put(&mut state, line).inspect_err(|_| {
            state.untold += 1;
            LOST.fetch_add(1, Relaxed);
        })
    }

    fn put(&self, state: &mut State, line: &str) -> io::Result<()> {
        let stream = self.stream.as_fd();
        let now = Instant::now();
        let patience = if state.impatient_until.is_some_and(|until| now < until) { &NONE } else { &PATIENCE };
        let mend = if state.torn { "\n" } else { "" };
        for piece in std::iter::once(mend.as_bytes()).chain(line.as_bytes().chunks(PIECE)) {
            if !piece.is_empty() && !ready(stream, patience) {
                state.impatient_until = Some(now + IMPATIENT);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            write_all(stream, piece)?;
            state.torn = !piece.is_empty() && !piece.ends_with(b"\n");
        }
        Ok(())
    }
}

/// Whether a piece goes without waiting. Where that cannot be told, writing tells.
fn ready(stream: BorrowedFd<'_>, patience: &Timespec) -> bool {
    poll(&mut [PollFd::from_borrowed_fd(stream, PollFlags::OUT)], Some(patience)).is_ok_and(|ready| ready > 0)
}

fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(stream, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn told(lost: u64) -> String {
        format!("{lost} lost\n")
    }

    /// Writes lines of this length, each with its number, until one is lost; says how many went.
    fn fill(output: &Output<io::PipeWriter>, length: usize) -> usize {
        (0..).take_while(|number| output.write(&format!("{number:0length$}\n"), told).is_ok()).count()
    }

    #[test]
    fn a_reader_that_has_stopped_stops_nobody_and_learns_how_much_it_missed() {
        for length in [100, 10_000] {
            let (mut reader, writer) = io::pipe().expect("a pipe");
            let output = Output::new(writer);
            let before = lines_lost();
            let went = fill(&output, length);
            assert!(went * length <= 1 << 20, "{went} lines of {length} went into a pipe");
            assert!((0..100).all(|_| output.write("lost, too\n", told).is_err()), "and nobody waits again");
            assert!(lines_lost() >= before + 101);

            let mut held = vec![0; (went + 1) * (length + 1)];
            let read = reader.read(&mut held).expect("it holds lines");
            output.write("here again\n", told).expect("there is room");
            drop(output);
            let mut text = String::from_utf8(held[..read].to_vec()).expect("digits");
            reader.read_to_string(&mut text).expect("the rest");
            let lines: Vec<&str> = text.lines().collect();

            let whole = (0..went).map(|number| format!("{number:0length$}"));
            assert!(whole.eq(lines[..went].iter().map(|line| (*line).to_owned())), "what went is whole");
            assert_eq!(lines[lines.len() - 2..], ["101 lost", "here again"]);
            assert!(lines.len() <= went + 3, "at most one line is torn");
        }
    }

    #[test]
    fn a_reader_that_has_gone_stops_nobody() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        assert!(Output::new(writer).write("said to nobody\n", told).is_err());
    }

    #[test]
    fn a_line_longer_than_a_piece_arrives_whole() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let line = format!("{}\n", "x".repeat(3 * PIECE));
        Output::new(writer).write(&line, told).expect("there is room");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("it is closed");
        assert_eq!(text, line);
    }
}
