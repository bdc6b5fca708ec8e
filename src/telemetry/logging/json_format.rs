//! The JSON format: one flat object a line.
//!
//! The JSON format of `tracing-subscriber` does not guarantee this shape: it neither defaults `event` and `message` nor
//! writes an error's causes, and a field named `level` would make the object repeat a name.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::log_line::LogLine;
use super::span_fields::{SpanFields, SpanFieldsLayer};

/// Writes each event as one line with one JSON object. The fields of the spans around an event are members of its object.
pub(crate) fn layer<S, W>(writer: W, region: Option<Arc<str>>) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let format = JsonFormat { region: region.map(|region| ("region", Value::from(&*region))) };
    // The library's text of span fields is not used.
    let lines = tracing_subscriber::fmt::layer().fmt_fields(debug_fn(|_, _, _| Ok(()))).event_format(format);
    SpanFieldsLayer.and_then(lines.with_writer(writer))
}

struct JsonFormat {
    /// A member of every line: the region of this process.
    region: Option<(&'static str, Value)>,
}

impl<S, N> FormatEvent<S, N> for JsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = LogLine::read(event);
        for span in context.event_scope().into_iter().flatten() {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                line.add_span_fields(fields);
            }
        }
        line.add_span_fields(&self.region);
        let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}
