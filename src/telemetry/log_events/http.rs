//! Log events of the HTTP API and the console.

use tracing::Level;

use super::log_event::{LogEvent, LogEventGroup};

pub(super) const HTTP: LogEventGroup = LogEventGroup {
    title: "HTTP API and console",
    description: "Requests, authentication and what operators did.",
    common_fields: &[],
    events: EVENTS,
};

const EVENTS: &[LogEvent] = &[
    LogEvent {
        name: "request",
        levels: &[Level::DEBUG, Level::INFO],
        fields: &["method", "route", "status", "duration_ms", "request_id"],
        meaning: "One HTTP request was answered. Status 499: its client disconnected before the response; what it changes is completed \
                  nevertheless. Probes and scrapes without an `X-Request-Id` and the console's own refresh are at debug.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "request_refused",
        levels: &[Level::WARN],
        fields: &["route", "request_id", "error"],
        meaning: "A request was rejected for a cause that the client does not see in full, usually a dependency \
                  that failed.",
        action: "Read `error`; look for `dependency_down`, `pressure_changed` and the store's events.",
    },
    LogEvent {
        name: "list_interrupted",
        levels: &[Level::WARN],
        fields: &["operation", "error"],
        meaning: "The store failed while a long list of orders was being sent. The connection was closed, so the client \
                  sees an incomplete response.",
        action: "Read `error`; look for `dependency_down` and the store's events.",
    },
    LogEvent {
        name: "topic_read_interrupted",
        levels: &[Level::WARN],
        fields: &["topic", "error"],
        meaning: "The topic log failed while records were being sent to a reader. The connection was closed, so the client \
                  sees an incomplete response.",
        action: "Read `error`; look for `dependency_down` and the store's events. The reader continues at its last cursor.",
    },
    LogEvent {
        name: "reading_group_not_registered",
        levels: &[Level::DEBUG],
        fields: &["group", "topic", "error"],
        meaning: "The group of an event stream could not be registered again, with which retention keeps its records.",
        action: "Nothing to do. The stream registers it again after a minute.",
    },
    LogEvent {
        name: "group_offsets_reset",
        levels: &[Level::INFO],
        fields: &["by", "group", "topic", "cursor"],
        meaning: "A reader has set the committed offsets of its group with `reset`, which may move them back, or to `end`, which may skip records.",
        action: "Nothing to do: it is the audit record.",
    },
    LogEvent {
        name: "request_failed",
        levels: &[Level::ERROR],
        fields: &["route", "request_id", "error"],
        meaning: "A request was answered with 500. Its cause is in `error`, which the client does not see.",
        action: "Report `error` as a bug, with the request id.",
    },
    LogEvent {
        name: "jwks_key_refused",
        levels: &[Level::WARN],
        fields: &["key_id", "reason"],
        meaning: "The key set at `auth.jwks_url` contains a key that must not verify tokens: it is not for signatures, \
                  too short, or without a key id. Tokens of this key are rejected. Logged once a key, from the start on.",
        action: "None, if it is the identity provider's key for another purpose. Otherwise replace the key there.",
    },
    LogEvent {
        name: "jwks_fetch_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The key set at `auth.jwks_url` could not be fetched or parsed. Known keys remain valid; tokens \
                  of unknown keys are rejected.",
        action: "Check that the identity provider is reachable from this host.",
    },
    LogEvent {
        name: "operator_action",
        levels: &[Level::INFO],
        fields: &["by", "action", "on", "reason"],
        meaning: "A user acted through the console, or on rows or dead letters through the API, for example parked a row.",
        action: "Nothing to do: it is the audit record.",
    },
    LogEvent {
        name: "dead_letters_redriven",
        levels: &[Level::INFO],
        fields: &["by", "topic", "reason", "redriven"],
        meaning: "A user sent dead letters of a topic back.",
        action: "Nothing to do: it is the audit record.",
    },
    LogEvent {
        name: "lagged",
        levels: &[],
        fields: &["missed"],
        meaning: "A reader of `/admin/events` missed `missed` events, because it was away for longer than the service keeps them, or reads too slowly. \
                  Its number is that of the last missed event.",
        action: "Nothing to do. The log has the events, except those that are only on the live event stream.",
    },
];
