//! Starting the log: its format, its level, its stream. Afterwards everyone logs through `tracing`.
//!
//! A fact is one event: `tracing::info!(event = "child_exited", child = %path, "a child exited")`. Its fields stand at
//! the top level of the line, so `timestamp`, `level` and `target` as names of fields get an underscore at their end.

use std::io::{self, IsTerminal, Write};

use tracing::subscriber::{SetGlobalDefaultError, set_global_default};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::prelude::*;

pub use crate::capture::{Capture, capture};
use crate::fact::Fact;
use crate::filter::filter;
use crate::json_line::json_line;
use crate::layer::LineLayer;
use crate::output::Output;
use crate::panics::log_panics;
use crate::pretty_line::{coloured_line, plain_line};

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people; coloured on a terminal, unless `NO_COLOR` is set.
    Pretty,
    /// For machines: one flat object a line.
    Json,
}

impl Format {
    /// Pretty when standard output is a terminal, else JSON: the default of `log.format`.
    pub fn of_stdout() -> Self {
        if io::stdout().is_terminal() { Format::Pretty } else { Format::Json }
    }
}

/// Why the log could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A word that is no level; whoever wrote the configuration can mend it.
    #[error(
        "{level:?} is no log level: write off, error, warn, info, debug or trace, or target=level, with commas between"
    )]
    UnknownLevel { level: String },
    /// A directive that cannot be read; whoever wrote the configuration can mend it.
    #[error("the log level {level:?} cannot be read")]
    Directive { level: String, source: ParseError },
    /// A second start in one process; a mistake of the program.
    #[error("the log was started twice")]
    StartedTwice(#[from] SetGlobalDefaultError),
}

/// Starts the process's log on standard output. Levels are written `info`, `debug` or `posthaste=debug,info`; `posthaste`
/// stands for all crates of the service. Once a process; a later call changes nothing and fails.
///
/// A line that cannot be written is lost: a pipe that is closed stops nobody, and one whose reader has stopped reading holds its writers
/// back for a tenth of a second. How many were lost says [`lines_lost`], and the log itself once there is room again.
pub fn init(format: Format, level: &str) -> Result<(), Error> {
    let (line, output) = (format.line(io::stdout().is_terminal()), Output::new(rustix::stdio::stdout()));
    let told = move |lost| line(&Fact::lost(lost));
    start(level, LineLayer { format: line, write: move |text: &str| output.write(text, told) })
}

/// Lines of this process's log that found no room, since its start.
pub fn lines_lost() -> u64 {
    crate::output::lines_lost()
}

/// The same on standard error, for commands whose standard output is data.
pub fn init_on_stderr(format: Format, level: &str) -> Result<(), Error> {
    let line = format.line(io::stderr().is_terminal());
    start(level, LineLayer { format: line, write: |line: &str| io::stderr().write_all(line.as_bytes()) })
}

/// Whether [`init`] would take this level, so that the configuration can report all its mistakes at once.
pub fn check_level(level: &str) -> Result<(), Error> {
    filter(level).map(drop)
}

fn start<W>(level: &str, layer: LineLayer<W>) -> Result<(), Error>
where
    W: Fn(&str) -> io::Result<()> + Send + Sync + 'static,
{
    let subscriber = tracing_subscriber::registry().with(filter(level)?).with(layer);
    set_global_default(subscriber)?;
    log_panics();
    Ok(())
}

impl Format {
    fn line(self, terminal: bool) -> fn(&Fact) -> String {
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        match self {
            Format::Json => json_line,
            Format::Pretty if colours => coloured_line,
            Format::Pretty => plain_line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_holds_and_a_second_one_is_refused() {
        assert!(matches!(init(Format::Json, "inof"), Err(Error::UnknownLevel { .. })));
        init_on_stderr(Format::Json, "off").expect("the first start in this process");

        assert!(matches!(init(Format::Pretty, "info"), Err(Error::StartedTwice(_))));
    }
}
