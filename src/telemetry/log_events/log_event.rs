//! The description of one log event, and of a group of them.

use tracing::Level;

/// One value of the `event` member of a log line.
#[derive(Debug, Clone, Copy)]
pub struct LogEvent {
    /// The value of `event`; unique in the catalogue.
    pub name: &'static str,
    /// The levels at which it is logged; empty when it is sent to the live event stream only.
    pub levels: &'static [Level],
    /// The members of the line in addition to the standard ones. A line contains those that apply.
    pub fields: &'static [&'static str],
    /// One or two sentences that say what happened.
    pub meaning: &'static str,
    /// The action that an operator should take.
    pub action: &'static str,
}

/// The events of one part of the service.
#[derive(Debug, Clone, Copy)]
pub struct LogEventGroup {
    /// The heading in the document.
    pub title: &'static str,
    /// One sentence below the heading.
    pub description: &'static str,
    /// Members that every line of the group has.
    pub common_fields: &'static [&'static str],
    /// The events in the order of the document.
    pub events: &'static [LogEvent],
}
