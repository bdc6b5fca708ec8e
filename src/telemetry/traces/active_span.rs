//! ActiveSpan: a span from its start until it is dropped.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use super::context::SpanContext;
use super::recorder::Recorder;
use super::span_data::{AttributeValue, SpanData};

/// A span that ends when it is dropped, also by a panic or by a future that is cancelled. Where its trace is not sampled it is empty: it allocates
/// nothing, and its methods do nothing.
#[derive(Default)]
#[must_use = "the span ends at once when it is dropped"]
pub struct ActiveSpan(Option<Box<Recording>>);

struct Recording {
    data: SpanData,
    started: Instant,
    recorder: Arc<Recorder>,
}

impl ActiveSpan {
    pub(super) fn recording(data: SpanData, recorder: &Arc<Recorder>) -> Self {
        Self(Some(Box::new(Recording { data, started: Instant::now(), recorder: Arc::clone(recorder) })))
    }

    /// The parent of spans that this one causes; `None` where the trace is not sampled.
    pub fn context(&self) -> Option<SpanContext> {
        self.0.as_ref().map(|recording| recording.data.context)
    }

    /// Adds an attribute; a name that is set twice is exported twice.
    pub fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        if let Some(recording) = &mut self.0 {
            recording.data.attributes.push((name, value.into()));
        }
    }

    /// Adds the text of a value as an attribute; the text is made only where the trace is sampled.
    pub fn set_text(&mut self, name: &'static str, value: impl Display) {
        if let Some(recording) = &mut self.0 {
            recording.data.attributes.push((name, AttributeValue::Text(value.to_string())));
        }
    }

    /// Marks the span as failed, with the class of its error: a word from a small, closed set, never a message.
    pub fn fail(&mut self, error_type: &'static str) {
        if let Some(recording) = &mut self.0 {
            recording.data.is_error = true;
            recording.data.attributes.push(("error.type", AttributeValue::Text(error_type.to_owned())));
        }
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        if let Some(recording) = self.0.take() {
            let Recording { mut data, started, recorder } = *recording;
            data.duration = started.elapsed();
            recorder.queue.push(data);
        }
    }
}
