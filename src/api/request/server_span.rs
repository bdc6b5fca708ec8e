//! The span of an HTTP request: a child of the client's span, or the first span of a trace.
use actix_web::http::header::HeaderMap;
use app::dispatch::RequestSpan;
use telemetry::traces::{ActiveSpan, SpanContext, SpanKind, Tracer};

use crate::request::headers::single_value;

/// Begins the span of a request. One that a machine `repeats` every few seconds begins no trace of its own.
pub(crate) fn begin(
    tracer: &Tracer,
    headers: &HeaderMap,
    (method, template): (&'static str, &'static str),
    repeats: bool,
) -> ActiveSpan {
    if !tracer.is_on() {
        return ActiveSpan::default();
    }
    let parent = single_value(headers, "traceparent").and_then(SpanContext::parse);
    let name = format_args!("{method} {template}");
    let mut span = match repeats {
        true => tracer.child(parent, SpanKind::Server, name),
        false => tracer.root_or_child(parent, SpanKind::Server, name),
    };
    span.set("http.request.method", method);
    span.set("http.route", template);
    span
}

/// Records the status of the response. A refusal is not a failure of the service.
pub(crate) fn responded(span: &mut ActiveSpan, status: u16) {
    span.set("http.response.status_code", u64::from(status));
    if status >= 500 {
        span.fail("server_error");
    }
}

/// The span as the parent of what a command causes.
pub(crate) fn parent(span: SpanContext) -> RequestSpan {
    RequestSpan { trace_id: span.trace_id, span_id: span.span_id }
}
