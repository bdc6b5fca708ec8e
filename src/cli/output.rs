//! Data goes to stdout, one line at a time; messages go to stderr.
use std::io::{ErrorKind, Write, stdout};

use super::failure::Failure;

/// Prints a line of data. Ends the process with 0 when the reader of a pipe has closed it, as `head` does.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(Failure::new),
    }
}
