//! An event's log line: one `tracing` event with constant text and flat fields.

use tracing::Level;

use crate::event::Event;

/// The sentence of an event. The message field of a line is this text, so the type an actor was handling is called `handling` there.
fn sentence(event: &str) -> &'static str {
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

macro_rules! line {
    ($level:ident, $e:ident: $($field:ident = $value:expr),+ $(,)?) => {
        tracing::event!(target: "supervision", Level::$level, event = $e.event, seq = $e.seq, supervisor = &*$e.supervisor,
            child = &*$e.child, child_type = $e.child_type, actor = $e.kind, generation = $e.generation, reason = $e.reason,
            $($field = $value),+, "{}", sentence($e.event))
    };
}

/// Fields a child's or supervisor's life carries. Two macros, because tracing allows 32 fields on one event.
macro_rules! life {
    ($level:ident, $e:ident) => {
        line!($level, $e: restart = $e.get_text("restart"), shutdown = $e.get_text("shutdown"), strategy = $e.get_text("strategy"),
            detail = $e.get_text("detail"), location = $e.get_text("location"), handling = $e.get_text("message"),
            startup_ms = $e.get_number("startup_ms"), attempt = $e.get_number("attempt"), downtime_ms = $e.get_number("downtime_ms"),
            uptime_ms = $e.get_number("uptime_ms"), mailbox_len = $e.get_number("mailbox_len"),
            in_flight_lost = $e.get_number("in_flight_lost"), delay_ms = $e.get_number("delay_ms"), group = $e.get_number("group"),
            restarts_in_window = $e.get_number("restarts_in_window"), max_restarts = $e.get_number("max_restarts"),
            window_ms = $e.get_number("window_ms"), limit_ms = $e.get_number("limit_ms"),
            elapsed_ms = $e.get_number("elapsed_ms"), exit_code = $e.get_number("exit_code"))
    };
}

/// Fields a finding about a running child or an arbiter carries.
macro_rules! finding {
    ($level:ident, $e:ident) => {
        line!($level, $e: detail = $e.get_text("detail"), handling = $e.get_text("message"), idle_ms = $e.get_number("idle_ms"),
            outstanding = $e.get_number("outstanding"), capacity = $e.get_number("capacity"), count = $e.get_number("count"),
            arbiter = $e.get_text("arbiter"), stall_ms = $e.get_number("stall_ms"), fault = $e.get_text("fault"), by = $e.get_text("by"))
    };
}

/// Writes the line of an event of the vocabulary.
pub(crate) fn write(e: &Event) {
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
        (false, Level::ERROR) => life!(ERROR, e),
        (false, Level::WARN) => life!(WARN, e),
        (false, _) => life!(INFO, e),
        (true, Level::ERROR) => finding!(ERROR, e),
        (true, Level::WARN) => finding!(WARN, e),
        (true, _) => finding!(INFO, e),
    }
}
