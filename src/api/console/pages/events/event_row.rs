//! A live event as a row of a table: time, severity, sentence, name.
use app::contract::rfc3339;
use app::dispatch::LiveEvent;
use domain::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::sentence::describe;
use crate::console::format::state_label;

/// The head of a table of events.
pub(crate) fn head() -> Markup {
    html! {
        thead { tr { th scope="col" { "Time" } th scope="col" { "Severity" } th scope="col" { "What happened" } th scope="col" { "Event" } } }
    }
}

/// The event as a row, with its fields as JSON behind the sentence.
pub(crate) fn event_row(event: &LiveEvent, now: Timestamp) -> Markup {
    let (severity, sentence) = describe(&event.event, &event.data);
    let at = rfc3339(Timestamp::from_millis(now.millis() - event.age.as_millis() as i64));
    let json =
        serde_json::from_str::<Value>(&event.data).map_or_else(|_| event.data.clone(), |json| format!("{json:#}"));
    html! {
        tr id={ "event-" (event.seq) } data-seq=(event.seq) data-event=(event.event) data-json=(event.data) {
            td data-label="Time" { time datetime=(at) title=(at) { (at.get(11..19).unwrap_or(&at)) } }
            td data-label="Severity" { (state_label(severity.as_str())) }
            td data-label="What happened" { details { summary { (sentence) } pre tabindex="0" { code { (json) } } } }
            td data-label="Event" { code { (event.event) } }
        }
    }
}
