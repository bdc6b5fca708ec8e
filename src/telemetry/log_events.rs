//! The catalogue of log events: every value of `event`, with its levels, fields, meaning and the operator's action.
//!
//! The events are written by the crates that log them. A test of the workspace compares their code with this catalogue.

mod broker;
mod http;
mod log_event;
mod process;
mod relay;
mod service;
mod stores;
mod supervision;

pub use log_event::{LogEvent, LogEventGroup};

/// Every log event of the service, by group.
pub const LOG_EVENTS: &[LogEventGroup] = &[
    process::PROCESS,
    http::HTTP,
    relay::RELAY,
    service::SERVICE,
    stores::STORES,
    broker::BROKER,
    supervision::SUPERVISION,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn event_names_are_unique() {
        let names: Vec<_> = LOG_EVENTS.iter().flat_map(|group| group.events).map(|event| event.name).collect();

        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn meaning_and_action_are_sentences_that_fit_into_a_table() {
        for event in LOG_EVENTS.iter().flat_map(|group| group.events) {
            for text in [event.meaning, event.action] {
                assert!(text.ends_with('.') && !text.contains(['|', '\n']) && !text.contains("  "), "{}", event.name);
            }
        }
    }

    #[test]
    fn error_events_say_what_to_do() {
        let errors = LOG_EVENTS.iter().flat_map(|group| group.events);
        for event in errors.filter(|event| event.levels.contains(&tracing::Level::ERROR)) {
            assert_ne!(event.action, "Nothing to do.", "{}", event.name);
        }
    }
}
