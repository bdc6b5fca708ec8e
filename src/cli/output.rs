//! Data goes to stdout, one line at a time; messages go to stderr.
use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

use super::failure::Failure;

pub(crate) mod field_list;
pub(crate) mod format;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod time;
pub(crate) mod wrap;

/// Prints a line of data. Ends the process with 0 when the reader of a pipe has closed it, as `head` does.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(Failure::new),
    }
}

/// A number with its noun: `1 row`, `2 rows`.
pub(crate) fn pluralize(number: u64, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

/// Prints a message. One that cannot be written (a full disk, a closed terminal) is dropped: the command's result and exit code do not depend
/// on it.
pub(crate) fn print_message(text: impl Display) {
    let _ = writeln!(stderr().lock(), "{text}");
}
