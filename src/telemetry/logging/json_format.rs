//! The JSON format: one flat object a line.
//!
//! The JSON format of `tracing-subscriber` does not guarantee this shape: it neither defaults `event` and `message` nor
//! writes an error's causes, and a field named `level` would make the object repeat a name.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::log_line::LogLine;

/// Writes each event as one line with one JSON object.
pub(crate) struct JsonFormat;

impl<S, N> FormatEvent<S, N> for JsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let line = serde_json::to_string(&LogLine::read(event)).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}
