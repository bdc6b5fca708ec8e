//! The fields of spans as JSON values, for the log lines of the events inside them.

use serde_json::Value;
use tracing::Subscriber;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::log_line::FieldVisitor;

/// The fields of one span, as last recorded.
pub(crate) struct SpanFields(pub(crate) Vec<(&'static str, Value)>);

/// Stores the fields of each span with the span.
pub(crate) struct SpanFieldsLayer;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanFieldsLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut visitor = FieldVisitor::default();
        attributes.record(&mut visitor);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(visitor.into_fields()));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut visitor = FieldVisitor::default();
        values.record(&mut visitor);
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(SpanFields(fields)) = extensions.get_mut() else { return };
        for (name, value) in visitor.into_fields() {
            fields.retain(|(existing, _)| *existing != name);
            fields.push((name, value));
        }
    }
}
