//! The text and the level of an event's log line: a sentence that an operator understands without the fields.

use tracing::Level;

use crate::events::event::SupervisionEvent;

/// The sentence of an event. It names the actor or supervisor, the cause and what follows.
pub(crate) fn sentence(e: &SupervisionEvent) -> String {
    let subject = subject(e);
    let number = |name| e.number(name).unwrap_or(0);
    match e.event {
        "child_started" => format!("{subject} started"),
        "child_restarted" => {
            format!("{subject} runs again as generation {}, {} ms after its exit", e.generation, number("downtime_ms"))
        }
        "child_start_failed" => format!("{subject} could not start (attempt {}): {}", number("attempt"), cause(e)),
        "child_exited" => format!("{subject} {}{}", exit(e), lost(e)),
        "restart_scheduled" => format!("{subject} restarts{} in {} ms{}", group(e), number("delay_ms"), budget(e)),
        "child_stopping" => format!("{subject} is asked to stop ({})", cause(e)),
        "child_terminated" => format!("{subject} ended ({}) and is not restarted", cause(e)),
        "shutdown_timeout" => format!("{subject} did not stop within {} ms and is killed", number("limit_ms")),
        "intensity_exceeded" => {
            format!("{subject} failed more often than its supervisor allows{}: {}", budget(e), cause(e))
        }
        "supervisor_stopped" => format!("{subject} stopped ({})", cause(e)),
        "tree_stopped" => {
            format!("the supervision tree stopped after running for {} ms ({})", number("elapsed_ms"), cause(e))
        }
        "child_added" => format!("{subject} was added to the supervisor {}", e.supervisor),
        "child_removed" => format!("{subject} was removed from the supervisor {}", e.supervisor),
        "fault_injected" => {
            format!("{} injected a fault into {subject}: {}", text(e, "by"), text(e, "fault"))
        }
        _ => finding(e, &subject),
    }
}

/// The sentence of a finding of the watchdog.
fn finding(e: &SupervisionEvent, subject: &str) -> String {
    let number = |name| e.number(name).unwrap_or(0);
    match e.event {
        "child_stuck" => {
            let (waiting, idle_ms) = (number("outstanding"), number("idle_ms"));
            format!("{subject} completed none of its {waiting} messages for {idle_ms} ms and is killed")
        }
        "mailbox_saturated" => {
            format!("the mailbox of {subject} is nearly full: {} of {}", number("outstanding"), number("capacity"))
        }
        "mailbox_recovered" => format!("the mailbox of {subject} has room again"),
        "message_unhandled" => {
            let (count, handling) = (number("count"), text(e, "message"));
            format!("{subject} did not handle {count} messages ({}), the latest of the type {handling}", cause(e))
        }
        "arbiter_stalled" => {
            format!("the thread {} has not responded for {} ms", text(e, "arbiter"), number("stall_ms"))
        }
        "arbiter_recovered" => format!("the thread {} responds again", text(e, "arbiter")),
        other => other.replace('_', " "),
    }
}

/// The level of an event's log line. A fact that a summary covers is logged at DEBUG: each start of an actor (`ready`,
/// `partitions_owned`), and each step of an orderly stop (`stopping`, `stopped`). The stream has all events at their own level.
pub(crate) fn log_level(e: &SupervisionEvent) -> Level {
    match (e.event, e.reason) {
        ("child_started" | "child_added" | "child_removed" | "child_stopping", _) => Level::DEBUG,
        ("child_exited" | "child_terminated" | "supervisor_stopped", Some("shutdown")) => Level::DEBUG,
        ("supervisor_stopped", Some("sibling")) => Level::DEBUG,
        // The one that failed is logged at its own level; each of the others must still be found.
        ("child_exited", Some("sibling")) => Level::INFO,
        _ => e.level,
    }
}

/// The kind and the path of an actor, or the name of a supervisor.
fn subject(e: &SupervisionEvent) -> String {
    if e.kind.is_empty() { format!("supervisor {}", e.child) } else { format!("{} {}", e.kind, e.child) }
}

fn text<'a>(e: &'a SupervisionEvent, name: &str) -> &'a str {
    e.text(name).unwrap_or("unknown")
}

/// The reason of an event, with its detail.
fn cause(e: &SupervisionEvent) -> String {
    match (e.reason, e.text("detail")) {
        (Some(reason), Some(detail)) => format!("{reason}: {detail}"),
        (Some(reason), None) => reason.to_owned(),
        (None, _) => "without a reason".to_owned(),
    }
}

/// The predicate of an exit.
fn exit(e: &SupervisionEvent) -> String {
    match e.reason {
        Some("panic") => {
            let handling = e.text("message").map(|message| format!(" while it handled {message}")).unwrap_or_default();
            format!("panicked{handling}: {} ({})", text(e, "detail"), text(e, "location"))
        }
        Some("killed") => format!("was killed: {}", text(e, "detail")),
        Some("sibling") => format!("was stopped, because its sibling {} failed", text(e, "detail")),
        Some("normal" | "shutdown") => "ended normally".to_owned(),
        _ => format!("ended ({})", cause(e)),
    }
}

/// The messages that an exit affected; nothing if there were none.
fn lost(e: &SupervisionEvent) -> String {
    let messages = match (e.number("in_flight_lost").unwrap_or(0), e.number("mailbox_len").unwrap_or(0)) {
        (0, 0) => String::new(),
        (in_flight, queued) => format!("; {in_flight} messages in flight are lost, {queued} wait in its mailbox"),
    };
    let in_progress = e.text("in_progress").map(|work| format!("; in progress: {work}")).unwrap_or_default();
    messages + &in_progress
}

/// The siblings that restart together with a child.
fn group(e: &SupervisionEvent) -> String {
    match e.number("group").unwrap_or(0) {
        0 => String::new(),
        others => format!(" with {others} siblings"),
    }
}

/// The used part of the restart intensity.
fn budget(e: &SupervisionEvent) -> String {
    match (e.number("restarts_in_window"), e.number("max_restarts"), e.number("window_ms")) {
        (Some(used), Some(max), Some(window_ms)) => format!(" ({used} of {max} restarts within {window_ms} ms used)"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::exit::ExitReason;

    fn event(name: &'static str, level: Level) -> SupervisionEvent {
        let mut event = SupervisionEvent::new(name, level);
        (event.child, event.kind, event.generation) = ("/relay/partition-worker-7".into(), "PartitionWorker", 2);
        event
    }

    fn exited(reason: ExitReason) -> SupervisionEvent {
        event("child_exited", Level::WARN).with_reason(&reason)
    }

    #[test]
    fn exits_and_restarts_are_sentences_with_names_causes_and_what_follows() {
        let panic = ExitReason::Panic { detail: "no row".into(), location: "a.rs:3:1".into(), message: Some("Run") };
        let restart = event("restart_scheduled", Level::INFO).with_number("delay_ms", 50).with_number("group", 65);
        let restart = restart.with_number("restarts_in_window", 1).with_number("max_restarts", 20);
        let cases = [
            (
                exited(panic).with_number("in_flight_lost", 1).with_number("mailbox_len", 3),
                "PartitionWorker /relay/partition-worker-7 panicked while it handled Run: no row (a.rs:3:1); \
                 1 messages in flight are lost, 3 wait in its mailbox",
            ),
            (
                exited(ExitReason::Sibling { failed: "outbox-publisher".into() }),
                "PartitionWorker /relay/partition-worker-7 was stopped, because its sibling outbox-publisher failed",
            ),
            (
                restart.with_number("window_ms", 60_000),
                "PartitionWorker /relay/partition-worker-7 restarts with 65 siblings in 50 ms (1 of 20 restarts within \
                 60000 ms used)",
            ),
            (
                event("child_restarted", Level::INFO).with_number("downtime_ms", 51),
                "PartitionWorker /relay/partition-worker-7 runs again as generation 2, 51 ms after its exit",
            ),
            (
                event("message_unhandled", Level::WARN).with_text("message", "Run").with_number("count", 2),
                "PartitionWorker /relay/partition-worker-7 did not handle 2 messages (without a reason), the latest of the \
                 type Run",
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(sentence(&event), expected);
        }
    }

    #[test]
    fn summarised_events_are_logged_at_debug_and_failures_at_their_level() {
        let panic = ExitReason::Panic { detail: String::new(), location: String::new(), message: None };
        let cases = [
            (event("child_started", Level::INFO), Level::DEBUG),
            (event("child_stopping", Level::INFO), Level::DEBUG),
            (exited(ExitReason::Shutdown), Level::DEBUG),
            (exited(ExitReason::Sibling { failed: String::new() }), Level::INFO),
            (exited(ExitReason::Killed { by: String::new() }), Level::WARN),
            (SupervisionEvent { level: Level::ERROR, ..exited(panic) }, Level::ERROR),
            (event("child_restarted", Level::INFO), Level::INFO),
            (event("restart_scheduled", Level::INFO), Level::INFO),
        ];
        for (event, expected) in cases {
            assert_eq!(log_level(&event), expected, "{event:?}");
        }
    }
}
