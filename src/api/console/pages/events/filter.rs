//! The filter of the events: by name, by the least severity, by text.
use std::collections::BTreeSet;

use app::dispatch::LiveEvent;
use maud::{Markup, html};

use super::sentence::{Severity, describe};
use crate::console::form::hidden_fields;
use crate::console::links::link;
use crate::error::Problem;
use crate::request::query::Query;

/// Which events are shown.
pub(super) struct EventFilter<'a> {
    /// Only this event; empty for all.
    pub(super) event: &'a str,
    /// Only events that are at least so severe.
    severity: Option<Severity>,
    /// Only events that contain this text; empty for all.
    pub(super) text: &'a str,
}

impl<'a> EventFilter<'a> {
    pub(super) fn read(query: &'a Query<'_>) -> Result<Self, Problem> {
        let text = |name| query.non_empty(name).map(Option::unwrap_or_default);
        let severity = query.non_empty("severity")?.map(|text| {
            Severity::parse(text).ok_or_else(|| Problem::field("severity", "must be one of error, warning, info"))
        });
        Ok(Self { event: text("event")?, severity: severity.transpose()?, text: text("q")? })
    }

    pub(super) fn matches(&self, event: &LiveEvent) -> bool {
        let (severity, sentence) = describe(&event.event, &event.data);
        let text = self.text.to_lowercase();
        (self.event.is_empty() || event.event == self.event)
            && self.severity.is_none_or(|least| severity >= least)
            && (sentence.to_lowercase().contains(&text) || event.data.to_lowercase().contains(&text))
    }

    pub(super) fn severity_name(&self) -> &'static str {
        self.severity.map_or("", Severity::as_str)
    }

    /// One link for each severity and each event name; a link can be bookmarked.
    pub(super) fn chips(&self, backlog: &[LiveEvent]) -> Markup {
        let names: BTreeSet<&str> =
            backlog.iter().map(|event| &*event.event).chain(Some(self.event)).filter(|name| !name.is_empty()).collect();
        let chip = |event: &str, severity: &str, label: &str| {
            let current = event == self.event && severity == self.severity_name();
            let href = link("/console/events", &[("event", event), ("severity", severity), ("q", self.text)]);
            html! { li { a href=(href) aria-current=[current.then_some("true")] { (label) } } }
        };
        html! {
            ul class="chips" aria-label="Filter by severity" {
                (chip("", "", "all")) (chip("", "error", "errors")) (chip("", "warning", "warnings and errors"))
            }
            details class="names" open[!self.event.is_empty()] {
                summary { "By event" }
                ul class="chips" id="chips" aria-label="Filter by event name" { @for name in names { (chip(name, "", name)) } }
            }
        }
    }

    pub(super) fn form(&self) -> Markup {
        html! {
            form method="get" action="/console/events" class="filter" role="search" {
                (hidden_fields(&[("event", self.event), ("severity", self.severity_name())]))
                label { "Contains " input type="search" name="q" value=(self.text) autocomplete="off"; }
                button { "Show" }
                @if !self.text.is_empty() { a href="/console/events" { "Clear" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_quoted_path_finds_the_events_of_one_actor_alone() {
        let event = |child: &str| LiveEvent {
            seq: 1,
            event: "child_started".into(),
            data: format!(r#"{{"child":"{child}"}}"#),
            age: Duration::ZERO,
        };
        let filter = EventFilter { event: "", severity: None, text: r#""/relay/partition-worker-1""# };

        assert!(filter.matches(&event("/relay/partition-worker-1")));
        assert!(!filter.matches(&event("/relay/partition-worker-10")));
    }
}
