//! The format for people: time, region, level, message, then the fields.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::registry::LookupSpan;

/// Lines such as `12:03:04.125Z region=eu  INFO listening event="listening" address=127.0.0.1:8080`, with ANSI colours on request.
pub(crate) fn layer<S, W>(writer: W, colours: bool, region: Option<Arc<str>>) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(write_field).delimited(" "))
        .with_timer(TimeAndRegion(region))
        .with_target(false)
        .with_ansi(colours)
        .with_writer(writer)
}

/// As [`layer`], without the fields: the sentence of an event contains the values that an operator needs.
pub(crate) fn brief_layer<S, W>(writer: W, colours: bool) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(write_message))
        .with_timer(TimeAndRegion(None))
        .with_target(false)
        .with_ansi(colours)
        .with_writer(writer)
}

/// The front of a line: the UTC time of day, and the region of this process.
struct TimeAndRegion(Option<Arc<str>>);

impl FormatTime for TimeAndRegion {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", Timestamp::now().strftime("%H:%M:%S%.3fZ"))?;
        self.0.as_ref().map_or(Ok(()), |region| write!(writer, " region={region}"))
    }
}

fn write_message(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() == "message" { write_field(writer, field, value) } else { Ok(()) }
}

/// Escapes control characters: a value that a client sent must neither forge a line nor control the terminal. The
/// library escapes terminal sequences, but not line breaks.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match field.name() {
        "message" => {}
        name if writer.has_ansi_escapes() => write!(writer, "\x1b[2m{name}=\x1b[0m")?,
        name => write!(writer, "{name}=")?,
    }
    format!("{value:?}").chars().try_for_each(|character| match character.is_control() {
        true => write!(writer, "{}", character.escape_debug()),
        false => writer.write_char(character),
    })
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;
    use tracing_subscriber::prelude::*;

    use super::super::buffer::LogBuffer;
    use super::*;

    fn logged(colours: bool, log: impl FnOnce()) -> String {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let layer = layer(move || writer.clone(), colours, Some("eu".into()));
        with_default(tracing_subscriber::registry().with(layer), log);
        buffer.text()
    }

    #[test]
    fn line_has_time_level_message_and_fields() {
        let line = logged(false, || {
            tracing::info!(event = "listening", address = %"127.0.0.1:8080", port = 8080, note = "a b", "for requests");
        });

        let (time, rest) = line.split_once(' ').expect("a time");
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "00:00:00.000Z");
        assert_eq!(
            rest,
            "region=eu  INFO for requests event=\"listening\" address=127.0.0.1:8080 port=8080 note=\"a b\"\n"
        );
    }

    #[test]
    fn brief_line_has_time_level_and_message_only() {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let layer = brief_layer(move || writer.clone(), false);

        with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error_span!("request", request_id = "r").in_scope(|| {
                tracing::warn!(event = "child_exited", child = "/a", "A /a panicked");
            });
        });

        let line = buffer.text();
        assert!(line.ends_with("Z  WARN request: A /a panicked\n"), "{line}");
    }

    #[test]
    fn event_without_message_has_its_fields_only() {
        let line = logged(false, || tracing::warn!(event = "listening"));

        assert!(line.ends_with("Z region=eu  WARN event=\"listening\"\n"), "{line}");
    }

    #[test]
    fn control_characters_in_values_are_escaped() {
        let line = logged(true, || tracing::info!(id = %"c\n\x1b[2Jd", text = "e\n\x1b[2Jf", "{}", "a\n\x1b[2Jb"));

        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains("\x1b[32m") && !line.contains("\x1b[2J"), "{line}");
    }
}
