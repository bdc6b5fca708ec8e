//! The log line of an event: one `tracing` event with a sentence and flat fields. The sentence occupies the field `message`, so the type of
//! the message that an actor was handling is logged as `handling`.

use tracing::Level;

use crate::events::event::SupervisionEvent;
use crate::events::sentence::{log_level, sentence};

macro_rules! log_event {
    ($level:ident, $e:ident: $($field:ident = $value:expr),+ $(,)?) => {
        tracing::event!(target: "supervision", Level::$level, event = $e.event, seq = $e.seq, supervisor = &*$e.supervisor,
            child = &*$e.child, child_type = $e.child_type, actor = $e.kind, generation = $e.generation, reason = $e.reason,
            $($field = $value),+, "{}", sentence($e))
    };
}

/// Logs an event of a child's or supervisor's life cycle. There are two macros because tracing allows 32 fields on one event.
macro_rules! log_lifecycle {
    ($level:ident, $e:ident) => {
        log_event!($level, $e: restart = $e.text("restart"), shutdown = $e.text("shutdown"), strategy = $e.text("strategy"),
            detail = $e.text("detail"), location = $e.text("location"), handling = $e.text("message"),
            startup_ms = $e.number("startup_ms"), attempt = $e.number("attempt"), downtime_ms = $e.number("downtime_ms"),
            uptime_ms = $e.number("uptime_ms"), mailbox_len = $e.number("mailbox_len"),
            in_flight_lost = $e.number("in_flight_lost"), in_progress = $e.text("in_progress"), delay_ms = $e.number("delay_ms"), group = $e.number("group"),
            restarts_in_window = $e.number("restarts_in_window"), max_restarts = $e.number("max_restarts"),
            window_ms = $e.number("window_ms"), limit_ms = $e.number("limit_ms"),
            elapsed_ms = $e.number("elapsed_ms"), exit_code = $e.number("exit_code"))
    };
}

/// Logs a finding of the watchdog, or a fault that was injected.
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
            | "message_unhandled"
            | "fault_injected"
    );
    match (finding, log_level(e)) {
        (false, Level::ERROR) => log_lifecycle!(ERROR, e),
        (false, Level::WARN) => log_lifecycle!(WARN, e),
        (false, Level::INFO) => log_lifecycle!(INFO, e),
        (false, _) => log_lifecycle!(DEBUG, e),
        (true, Level::ERROR) => log_finding!(ERROR, e),
        (true, Level::WARN) => log_finding!(WARN, e),
        (true, _) => log_finding!(INFO, e),
    }
}
