//! The log line of an event: one `tracing` event with constant text and flat fields.

use tracing::Level;

use crate::events::event::SupervisionEvent;

/// The constant text of an event's line. It occupies the line's `message` field, so the type of the message that an actor was handling
/// is logged as `handling`.
fn message(event: &str) -> &'static str {
    match event {
        "child_started" => "child started",
        "child_restarted" => "child restarted",
        "child_start_failed" => "child failed to start",
        "child_exited" => "child exited",
        "restart_scheduled" => "restart scheduled",
        "child_stopping" => "child is asked to stop",
        "child_terminated" => "child ended and is not restarted",
        "shutdown_timeout" => "child did not stop in time and is killed",
        "intensity_exceeded" => "more restarts than the supervisor allows",
        "supervisor_stopped" => "supervisor stopped",
        "tree_stopped" => "tree stopped",
        "child_stuck" => "child makes no progress and is killed",
        "arbiter_stalled" => "arbiter stalled",
        "arbiter_recovered" => "arbiter recovered",
        "mailbox_saturated" => "mailbox saturated",
        "mailbox_recovered" => "mailbox recovered",
        "dead_letter" => "messages were not handled",
        "child_added" => "child added",
        "child_removed" => "child removed",
        "fault_injected" => "fault injected",
        _ => "supervision event",
    }
}

macro_rules! log_event {
    ($level:ident, $e:ident: $($field:ident = $value:expr),+ $(,)?) => {
        tracing::event!(target: "supervision", Level::$level, event = $e.event, seq = $e.seq, supervisor = &*$e.supervisor,
            child = &*$e.child, child_type = $e.child_type, actor = $e.kind, generation = $e.generation, reason = $e.reason,
            $($field = $value),+, "{}", message($e.event))
    };
}

/// Logs an event of a child's or supervisor's life cycle. There are two macros because tracing allows 32 fields on one event.
macro_rules! log_lifecycle {
    ($level:ident, $e:ident) => {
        log_event!($level, $e: restart = $e.text("restart"), shutdown = $e.text("shutdown"), strategy = $e.text("strategy"),
            detail = $e.text("detail"), location = $e.text("location"), handling = $e.text("message"),
            startup_ms = $e.number("startup_ms"), attempt = $e.number("attempt"), downtime_ms = $e.number("downtime_ms"),
            uptime_ms = $e.number("uptime_ms"), mailbox_len = $e.number("mailbox_len"),
            in_flight_lost = $e.number("in_flight_lost"), delay_ms = $e.number("delay_ms"), group = $e.number("group"),
            restarts_in_window = $e.number("restarts_in_window"), max_restarts = $e.number("max_restarts"),
            window_ms = $e.number("window_ms"), limit_ms = $e.number("limit_ms"),
            elapsed_ms = $e.number("elapsed_ms"), exit_code = $e.number("exit_code"))
    };
}

/// Logs what the watchdog found, or a fault that was injected.
macro_rules! log_finding {
    ($level:ident, $e:ident) => {
        log_event!($level, $e: detail = $e.text("detail"), handling = $e.text("message"), idle_ms = $e.number("idle_ms"),
            outstanding = $e.number("outstanding"), capacity = $e.number("capacity"), count = $e.number("count"),
            arbiter = $e.text("arbiter"), stall_ms = $e.number("stall_ms"), fault = $e.text("fault"), by = $e.text("by"))
    };
}

/// Writes the log line of one event of this crate.
pub(crate) fn write(e: &SupervisionEvent) {
    let finding = matches!(
        e.event,
        "child_stuck"
            | "arbiter_stalled"
            | "arbiter_recovered"
            | "mailbox_saturated"
            | "mailbox_recovered"
            | "dead_letter"
            | "fault_injected"
    );
    match (finding, e.level) {
        (false, Level::ERROR) => log_lifecycle!(ERROR, e),
        (false, Level::WARN) => log_lifecycle!(WARN, e),
        (false, _) => log_lifecycle!(INFO, e),
        (true, Level::ERROR) => log_finding!(ERROR, e),
        (true, Level::WARN) => log_finding!(WARN, e),
        (true, _) => log_finding!(INFO, e),
    }
}
