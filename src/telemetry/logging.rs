//! Installs the log: format, levels and output stream. Code logs through `tracing` macros only.
//!
//! A log event is one `tracing` event with an `event` field: `tracing::info!(event = "child_exited", child = %path, "a
//! child exited")`. Its fields are members of the JSON object's top level, so fields named `timestamp`, `level` or
//! `target` get an underscore appended. [`LOG_EVENTS`](crate::LOG_EVENTS) lists every event.
//!
//! The fields of the spans around an event are members of its object, too. A request's span has `request_id` and
//! `order_id`; the message to an actor carries it. Such spans have level ERROR, so that no `log.level` switches them off.

mod buffer;
#[cfg(test)]
mod capture;
mod error;
mod filter;
mod json_format;
mod log_line;
mod panic_hook;
mod pretty_format;
mod queue;
mod span_fields;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use tracing::subscriber::{set_global_default, with_default};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, Registry};

use buffer::LogBuffer;
pub use error::Error;
pub use filter::SERVICE_CRATES;
pub use queue::{LogGuard, lines_lost};

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One line of text for people; coloured on a terminal unless `NO_COLOR` is set.
    Pretty,
    /// One flat JSON object a line, for log collectors.
    Json,
}

impl Format {
    /// The default of `log.format`: pretty when standard output is a terminal, otherwise JSON.
    pub fn for_stdout() -> Self {
        if io::stdout().is_terminal() { Format::Pretty } else { Format::Json }
    }
}

/// Installs the process's log on standard output. A level is `info`, `debug` or a list such as `posthaste=debug,info`, in
/// which `posthaste` stands for all crates of the service.
///
/// Logging never blocks: a bounded queue feeds a writer thread, and a line that finds the queue full, or that cannot be
/// written, is lost and counted in [`lines_lost`]. The log reports the loss (`log_lines_lost`) when the queue is empty
/// again. Drop the guard at the end of the process: it writes the queued lines. Every line has the region.
///
/// # Errors
/// The level is invalid, or the process has a log already.
pub fn init(format: Format, level: &str, region: &str) -> Result<LogGuard, Error> {
    let filter = filter::filter(level)?;
    let terminal = io::stdout().is_terminal();
    let region = Some(Arc::<str>::from(region));
    let notice_region = region.clone();
    let (queue, guard) =
        queue::open(io::stdout(), move |lines| loss_notice(format, terminal, notice_region.clone(), lines));
    set_global_default(tracing_subscriber::registry().with(layer(format, terminal, region, queue)).with(filter))?;
    panic_hook::log_panics();
    Ok(guard)
}

/// Installs the process's log on standard error, without a queue, with time, level and sentence of each event: for commands whose standard
/// output is for people.
///
/// # Errors
/// The level is invalid, or the process has a log already.
pub fn init_brief_on_stderr(level: &str) -> Result<(), Error> {
    let filter = filter::filter(level)?;
    let layer = pretty_format::brief_layer(io::stderr, colours(io::stderr().is_terminal()));
    set_global_default(tracing_subscriber::registry().with(layer).with(filter))?;
    panic_hook::log_panics();
    Ok(())
}

/// Checks a level as [`init`] does, so that the configuration can report all its errors together.
///
/// # Errors
/// The level is invalid.
pub fn check_level(level: &str) -> Result<(), Error> {
    filter::filter::<Registry>(level).map(drop)
}

/// The line that reports losses. It is formatted by the log's own layer, but does not go through the queue.
fn loss_notice(format: Format, terminal: bool, region: Option<Arc<str>>, lines: u64) -> String {
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let layer = layer(format, terminal, region, move || writer.clone());
    with_default(tracing_subscriber::registry().with(layer), || {
        tracing::warn!(
            event = "log_lines_lost",
            lines,
            "log lines were lost: the queue of the log was full, or they could not be written"
        );
    });
    buffer.text()
}

fn layer<W>(
    format: Format,
    terminal: bool,
    region: Option<Arc<str>>,
    writer: W,
) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let colours = colours(terminal);
    match format {
        Format::Json => json_format::layer(writer, region).boxed(),
        Format::Pretty => pretty_format::layer(writer, colours, region).boxed(),
    }
}

fn colours(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_init_succeeds_and_a_second_one_is_refused() {
        assert!(matches!(init(Format::Json, "inof", "eu"), Err(Error::UnknownLevel { .. })));
        init_brief_on_stderr("off").expect("the first init in this process");

        assert!(matches!(init(Format::Pretty, "info", "eu"), Err(Error::InitializedTwice(_))));
    }

    #[test]
    fn loss_notice_is_a_line_in_the_format_of_the_log() {
        let json: serde_json::Value =
            serde_json::from_str(&loss_notice(Format::Json, false, None, 7)).expect("one object");
        let pretty = loss_notice(Format::Pretty, false, None, 7);

        assert_eq!(
            (&json["event"], &json["level"], &json["lines"]),
            (&"log_lines_lost".into(), &"WARN".into(), &7.into())
        );
        assert!(pretty.contains(" WARN ") && pretty.ends_with("lines=7\n"), "{pretty}");
    }
}
