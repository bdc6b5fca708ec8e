//! CommandSpan: the span of one command in its actor, with the spans of the commits that it makes.
use std::sync::Arc;

use app::commands::{CommitObserver, CommitProgress};
use app::dispatch::RequestSpan;
use app::error::CommandError;
use domain::OrderId;
use supervision::MailboxPermit;
use telemetry::traces::{ActiveSpan, SpanContext, SpanKind, Tracer};

/// The span of a command, from the moment at which its actor takes it from the mailbox. Empty unless the request is traced.
pub struct CommandSpan(ActiveSpan);

/// Starts a span for each commit of a command.
struct CommitSpans {
    tracer: Tracer,
    parent: SpanContext,
}

impl CommitObserver for CommitSpans {
    fn begin(&self) -> Box<dyn Send> {
        Box::new(self.tracer.child(Some(self.parent), SpanKind::Client, format_args!("store commit")))
    }
}

impl CommandSpan {
    /// Begins the span of a command, such as `OrderAggregate create`. Also returns the progress to commit with, which adds a span for each commit.
    pub fn begin(
        tracer: &Tracer,
        request: Option<RequestSpan>,
        name: &'static str,
        permit: &MailboxPermit,
        progress: CommitProgress,
    ) -> (Self, CommitProgress) {
        let parent =
            request.map(|RequestSpan { trace_id, span_id }| SpanContext { trace_id, span_id, is_sampled: true });
        let mut span = tracer.child(parent, SpanKind::Internal, format_args!("{name}"));
        let Some(parent) = span.context() else { return (Self(span), progress) };
        span.set("posthaste.mailbox.wait_ms", permit.queued_for());
        let commits = CommitSpans { tracer: tracer.clone(), parent };
        (Self(span), progress.observed_by(Arc::new(commits)))
    }

    /// Adds the id of the command's order.
    pub fn set_order(&mut self, id: OrderId) {
        self.0.set_text("posthaste.order_id", id);
    }

    /// Adds the number of the command's events.
    pub fn set_event_count(&mut self, count: usize) {
        self.0.set("posthaste.events", count as u64);
    }

    /// Ends the span with the command's result.
    pub fn end<T>(mut self, result: &Result<T, CommandError>) {
        if let Err(error) = result {
            self.0.fail(error_type(error));
        }
    }
}

/// The class of an error. Its message may name hosts and statements, and stays in the log.
fn error_type(error: &CommandError) -> &'static str {
    match error {
        CommandError::Gated(_) => "gated",
        CommandError::KeyRunning => "key_running",
        CommandError::KeyReused => "key_reused",
        CommandError::NotFound => "not_found",
        CommandError::PreconditionFailed { .. } => "precondition_failed",
        CommandError::Conflict(_) => "conflict",
        CommandError::RegionConflict(_) => "region_conflict",
        CommandError::Busy => "busy",
        CommandError::ActorDown => "actor_down",
        CommandError::Expired => "expired",
        CommandError::Unavailable(_) => "unavailable",
        CommandError::StorageFull(_) => "storage_full",
        CommandError::Unknown(_) => "unknown_outcome",
    }
}
