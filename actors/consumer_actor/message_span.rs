//! The span of a consumed message, in the trace that its record names.
use app::consume::chain::FailureAction;
use app::consume::message_decision::MessageDecision;
use app::policy::conflict::ConflictDecision;
use domain::WebhookId;
use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::endpoint::EndpointError;
use telemetry::traces::{ActiveSpan, SpanContext, SpanKind, Tracer};

/// Begins the span of a message that a consumer handles. Empty unless the record's trace is sampled.
pub fn begin_consume(tracer: &Tracer, message: &ConsumerRecord, group: &str) -> ActiveSpan {
    let topic = &message.position.topic;
    let mut span = begin(tracer, message, SpanKind::Consumer, format_args!("consume {topic}"));
    span.set("messaging.operation.type", "process");
    span.set("messaging.consumer.group.name", group);
    span
}

/// Begins the span of a call that delivers a message to a webhook's endpoint. The URL may be secret and stays out.
pub fn begin_delivery(tracer: &Tracer, message: &ConsumerRecord, webhook: WebhookId, attempt: u32) -> ActiveSpan {
    let mut span = begin(tracer, message, SpanKind::Client, format_args!("deliver to webhook"));
    span.set_text("posthaste.webhook", webhook);
    span.set("posthaste.attempt", u64::from(attempt));
    span
}

fn begin(tracer: &Tracer, message: &ConsumerRecord, kind: SpanKind, name: std::fmt::Arguments<'_>) -> ActiveSpan {
    if !tracer.is_on() {
        return ActiveSpan::default();
    }
    let ConsumerRecord { position: Position { topic, partition, offset }, record } = message;
    let parent = record.text("traceparent").and_then(SpanContext::parse);
    let mut span = tracer.child(parent, kind, name);
    span.set_text("messaging.destination.name", topic);
    span.set_text("messaging.destination.partition.id", partition);
    span.set("messaging.kafka.offset", *offset);
    span.set_text("messaging.kafka.message.key", &record.key);
    if let Some(id) = record.text("ce_id") {
        span.set("messaging.message.id", id);
    }
    span
}

/// Records the decision on a message in its span.
pub fn record_decision(span: &mut ActiveSpan, decision: &MessageDecision, attempt: u32) {
    span.set("posthaste.attempt", u64::from(attempt));
    match decision {
        MessageDecision::Process { region_rule, fallback_after, .. } => {
            span.set("posthaste.stale", *region_rule != ConflictDecision::Apply);
            if fallback_after.is_some() {
                span.set("posthaste.fallback", true);
            }
        }
        MessageDecision::Forward { action, .. } => span.fail(match action {
            FailureAction::Retry => "retried",
            FailureAction::BlockKey => "blocked",
            FailureAction::DeadLetter => "dead_lettered",
        }),
    }
}

/// Records the response of a webhook's endpoint.
pub fn record_response(span: &mut ActiveSpan, result: &Result<u16, EndpointError>) {
    match result {
        Ok(status) => {
            span.set("http.response.status_code", u64::from(*status));
            if !(200..=299).contains(status) {
                span.fail("status");
            }
        }
        Err(error) => span.fail(error.failure_type.as_str()),
    }
}
