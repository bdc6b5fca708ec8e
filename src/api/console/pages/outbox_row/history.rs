//! The history of a row as a timeline: the times in its columns, the actions of operators, when it was parked, and how an open batch with it ended.
use app::dispatch::LiveEvent;
use app::port_types::{AuditEntry, RecordLocation, RowDiagnosis};
use domain::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::console::format::relative_time;
use crate::console::pages::events::sentence::describe;
use crate::request::context::RequestContext;

/// An entry of the timeline: a time and a sentence.
struct TimelineEntry {
    at: Timestamp,
    class: &'static str,
    text: String,
}

pub(super) fn timeline(
    context: &RequestContext,
    diagnosis: &RowDiagnosis,
    audit: &[AuditEntry],
    now: Timestamp,
) -> Markup {
    let mut entries = recorded(diagnosis, now);
    entries.extend(audit.iter().map(|entry| TimelineEntry { at: entry.at, class: "", text: action_text(entry) }));
    entries.extend(announced(context, diagnosis, now));
    entries.sort_by_key(|entry| entry.at);
    html! {
        ol class="timeline" {
            @for entry in &entries {
                li class=(entry.class) { (relative_time(entry.at, now)) " " span { (entry.text) } }
            }
        }
    }
}

/// The events that the row itself records.
fn recorded(diagnosis: &RowDiagnosis, now: Timestamp) -> Vec<TimelineEntry> {
    let row = &diagnosis.row;
    let mut entries = vec![TimelineEntry { at: row.created_at, class: "", text: "Committed".to_owned() }];
    let mut add = |at: Option<Timestamp>, class, text: String| {
        entries.extend(at.map(|at| TimelineEntry { at, class, text }));
    };
    let failure = row.last_failure_reason.as_deref().filter(|_| row.sent_at.is_none());
    let claimer = row.lease_owner.as_ref().map(|owner| format!(" by {owner}")).unwrap_or_default();
    let claim = format!("Attempt {}{claimer} with token {}", row.retry_count.max(1), row.lease_version);
    let attempt = failure.map_or(claim.clone(), |reason| format!("{claim} failed: {reason}"));
    add(row.last_attempt_at, if failure.is_some() { "watch" } else { "" }, attempt);
    let sent_to = diagnosis.sent_to.as_ref();
    let sent_to = sent_to.map(|sent_to| format!(" to {}", sent_to_text(sent_to)));
    add(row.sent_at, "good", format!("Sent{}", sent_to.unwrap_or_default()));
    add(row.next_attempt_at.filter(|at| *at > now), "calm", "Next attempt is due".to_owned());
    entries
}

/// `order.events, partition 3, offset 17`, or the topic alone.
pub(super) fn sent_to_text(RecordLocation { topic, partition_offset }: &RecordLocation) -> String {
    partition_offset.map_or_else(
        || topic.to_string(),
        |(partition, offset)| format!("{topic}, partition {partition}, offset {offset}"),
    )
}

/// `root: park (inspect first)`; a reason may be empty.
fn action_text(entry: &AuditEntry) -> String {
    let reason = &entry.audit.reason;
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!("{}: {}{reason}", entry.audit.operator, entry.action)
}

/// When the relay parked the row, and when the batch of its last claim was resolved, if the live stream still has the events: no column
/// records these times.
fn announced(context: &RequestContext, diagnosis: &RowDiagnosis, now: Timestamp) -> Vec<TimelineEntry> {
    let row = &diagnosis.row;
    let (id, partition, token) = (row.id.to_string(), row.partition.to_string(), row.lease_version.to_string());
    let events = context.state.dispatch.live(Some(0)).backlog.into_iter();
    let entry = |event: LiveEvent| {
        let data: Value = serde_json::from_str(&event.data).ok()?;
        let class = match &*event.event {
            "event_parked" if data["row"] == id => "bad",
            "batch_resolved" if data["partition"] == partition && data["token"] == token => "watch",
            _ => return None,
        };
        let (_, text) = describe(&event.event, &event.data);
        Some(TimelineEntry { at: Timestamp::from_millis(now.millis() - event.age.as_millis() as i64), class, text })
    };
    events.filter_map(entry).collect()
}
