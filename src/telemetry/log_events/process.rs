//! Log events of the process and of the log itself.

use tracing::Level;

use super::log_event::{LogEvent, LogEventGroup};

pub(super) const PROCESS: LogEventGroup = LogEventGroup {
    title: "Process",
    description: "Start, stop and the log itself.",
    common_fields: &[],
    events: EVENTS,
};

const EVENTS: &[LogEvent] = &[
    LogEvent {
        name: "listening",
        levels: &[Level::INFO],
        fields: &["address"],
        meaning: "A listener accepts connections; one event for each listener.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "ready",
        levels: &[Level::INFO],
        fields: &["url", "console", "version", "commit", "store", "broker", "instance", "elapsed_ms"],
        meaning: "The service has started: its addresses, its version, its store and its broker.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "store_unreachable",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The store cannot be reached at start. The process keeps trying until `startup.deadline`.",
        action: "Start the store, or correct `store.url`.",
    },
    LogEvent {
        name: "instance_held",
        levels: &[Level::WARN],
        fields: &["error", "wait_ms"],
        meaning: "Another process holds the data folder or the instance id. This one waits `wait_ms` for its end, because a \
                  restart begins while the earlier process ends, and then gives up.",
        action: "Stop the other process, or give this one a `store.path`, `http.listen` and `instance.id` of its own.",
    },
    LogEvent {
        name: "development_secret",
        levels: &[Level::WARN],
        fields: &[],
        meaning: "The process accepts tokens signed with the public development secret.",
        action: "Never run production with `--dev`: configure a key under `auth`.",
    },
    LogEvent {
        name: "open_files_not_raised",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The limit of open files could not be raised to its maximum. Each connection needs one.",
        action: "Raise the soft limit (`ulimit -n`, `LimitNOFILE`) above `http.max_connections`.",
    },
    LogEvent {
        name: "topics_not_created",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The topics of the embedded broker could not be created at start. Each is created when it is \
                  first used.",
        action: "Check the free space and permissions of `store.path` if the event repeats.",
    },
    LogEvent {
        name: "announce_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The instance could not store its listening addresses. A second process with the same \
                  `instance.id` then cannot name the address of the first in its error.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "start_failed",
        levels: &[Level::ERROR],
        fields: &["error", "exit_code"],
        meaning: "The service could not start; the process ends with `exit_code`.",
        action: "Read `error`; 78 is a mistake in the configuration, a missing migration or a changed number of partitions. \
                 `posthaste doctor` checks the dependencies.",
    },
    LogEvent {
        name: "panicked",
        levels: &[Level::ERROR],
        fields: &["detail", "location", "thread"],
        meaning: "Code outside an actor panicked. Panics of actors are `child_exited` events.",
        action: "Report `detail` and `location` as a bug. Restart the process if it no longer answers.",
    },
    LogEvent {
        name: "root_gave_up",
        levels: &[Level::ERROR],
        fields: &["reason"],
        meaning: "The supervision tree failed more often than its restart intensity allows, a listener failed, or another process took over \
                  the instance id, as `reason` says. The process drains and ends with exit code 70.",
        action: "Find the `child_exited` events before it, or correct what `reason` names. The platform should restart the process.",
    },
    LogEvent {
        name: "configuration_reloaded",
        levels: &[Level::INFO],
        fields: &["applied", "restart_needed"],
        meaning: "SIGHUP: the configuration was read again. `applied` names the changed settings that hold from now on, \
                  `restart_needed` those that the process keeps as they were. A changed secret is in neither.",
        action: "Restart the process if `restart_needed` names a setting, or if you changed a secret.",
    },
    LogEvent {
        name: "configuration_rejected",
        levels: &[Level::ERROR],
        fields: &["error"],
        meaning: "SIGHUP: the configuration has mistakes. Nothing was changed.",
        action: "Correct what `error` lists, and send SIGHUP again: a restart with these mistakes would fail.",
    },
    LogEvent {
        name: "stopping",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "The process received a signal, or its tree has failed: it accepts no more work and completes the \
                  work in progress.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "stopped",
        levels: &[Level::INFO, Level::WARN],
        fields: &["elapsed_ms", "actors_left", "partitions_left"],
        meaning: "The process has drained. `actors_left` and `partitions_left` count what did not stop before \
                  `shutdown.deadline`, a warning if there are any. A partition that was not handed over has its next \
                  owner when its lease expires, `outbox.lease` later at the latest.",
        action: "Raise `shutdown.deadline` if the counts are often above 0: half of it is for the handover.",
    },
    LogEvent {
        name: "thread_left_behind",
        levels: &[Level::WARN],
        fields: &[],
        meaning: "At a stop, a thread of the actors did not end: a handler or a call of a library blocks it.",
        action: "Look for the handler that does not return; the next start settles its work.",
    },
    LogEvent {
        name: "stop_timed_out",
        levels: &[Level::ERROR],
        fields: &[],
        meaning: "A stop had not ended 2 s after `shutdown.deadline`. The process ended as after a crash, with \
                  exit code 1, or 70 after `root_gave_up`.",
        action: "Nothing is lost; the next start settles what was unfinished. Report the log lines before it if it repeats.",
    },
    LogEvent {
        name: "close_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The store was not closed cleanly; the next start recovers it.",
        action: "Check the disk of `store.path` or the store's own log if the event repeats.",
    },
    LogEvent {
        name: "log_lines_lost",
        levels: &[Level::WARN],
        fields: &["lines"],
        meaning: "This number of log lines was lost. The queue of the log was full, because the reader of standard output stopped reading or \
                  a busy machine gave the log's thread no processor; or a write failed. The service was not delayed.",
        action: "Check the log collector, and the load of the machine; `log_lines_lost_count_total` has the sum.",
    },
    LogEvent {
        name: "span_export_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The export of spans began to fail. Requests and events are not affected; spans that cannot be sent are dropped and \
                  counted in `spans_dropped_total`. It is logged once until the export works again.",
        action: "Check the collector at `tracing.endpoint`, and `tracing.headers`.",
    },
    LogEvent {
        name: "span_export_recovered",
        levels: &[Level::INFO],
        fields: &["dropped"],
        meaning: "The collector accepts spans again after `span_export_failed`; `dropped` were lost meanwhile.",
        action: "Nothing to do.",
    },
];
