//! The facts of a row: its status, its claim, its attempts, and where its record is.
use app::contract::rfc3339;
use app::port_types::{RowDiagnosis, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use super::history::sent_to_text;
use crate::console::format::{optional_time, or_dash, relative_time, state_label};
use crate::console::links::link;

/// The facts as a table. `attempts_max` is the limit of the row's topic; `None` where the event, and so its topic, was deleted.
pub(super) fn facts(diagnosis: &RowDiagnosis, attempts_max: Option<u32>, now: Timestamp) -> Markup {
    let RowDiagnosis { row, head: _, owner, epoch, deaths, sent_to, by_fallback } = diagnosis;
    let key = row.key.to_string();
    // A row that is sent or parked makes no further attempt by itself.
    let limit = attempts_max.filter(|_| !matches!(row.status, RowStatus::Sent | RowStatus::Parked));
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        div class="wide" { table class="facts" {
            caption { "Details" }
            tbody {
                (fact("Status", state_label(row.status.as_str())))
                (fact("Type", html! { (row.event_type) }))
                (fact("Key", html! { a href=(link("/console/outbox", &[("key", &key)])) { code { (key) } } }))
                (fact("Event", html! { code { (row.event_id) } }))
                (fact("Partition", html! { (row.partition.0) ", owned by " (or_dash(owner.as_ref().map(|owner| &*owner.0))) " since epoch " (epoch) }))
                (fact("Last claim", html! { (or_dash(row.lease_owner.as_ref().map(|owner| &*owner.0))) ", token " (row.lease_version) }))
                (fact("Attempts", html! { (row.retry_count) @if let Some(max) = limit { " of " (max) } }))
                (fact("Next attempt", optional_time(row.next_attempt_at, now)))
                @if let Some(failure) = row.failure_type { (fact("Failure", html! { (failure.as_str()) })) }
                @if let Some(reason) = &row.last_failure_reason { (fact("Last failure", html! { (reason) })) }
                @if *deaths > 0 { (fact("Instance deaths while publishing it", html! { (deaths) })) }
                (fact("Created", html! { (relative_time(row.created_at, now)) " (" (rfc3339(row.created_at)) ")" }))
                (fact("Sent", optional_time(row.sent_at, now)))
                @if let Some(sent_to) = sent_to {
                    (fact("Sent to", html! { (sent_to_text(sent_to)) }))
                }
                @if *by_fallback { (fact("How", html! { "by the fallback of its type" })) }
            }
        } }
    }
}

#[cfg(test)]
mod tests {
    use app::port_types::{EventKey, PartitionNo, RowView};
    use domain::EventId;

    use super::*;

    #[test]
    fn attempts_have_their_limit_while_the_row_makes_further_ones() {
        let attempts = |status, attempts_max| {
            let created_at = Timestamp::from_millis(1_000);
            let row = RowView {
                id: 6,
                event_id: EventId::new_v7(created_at, [1; 10]),
                key: EventKey::parse("7").expect("a key"),
                event_type: "INVOICED".to_owned(),
                partition: PartitionNo(0),
                status,
                lease_owner: None,
                lease_version: 5,
                retry_count: 3,
                next_attempt_at: None,
                last_attempt_at: None,
                failure_type: None,
                last_failure_reason: None,
                created_at,
                sent_at: None,
            };
            let diagnosis =
                RowDiagnosis { row, head: None, owner: None, epoch: 4, deaths: 0, sent_to: None, by_fallback: false };
            let text = facts(&diagnosis, attempts_max, created_at).into_string();
            let (_, after) = text.split_once("Attempts</th><td>").expect("the fact");
            after.split_once('<').expect("its end").0.to_owned()
        };

        assert_eq!(attempts(RowStatus::Failed, Some(12)), "3 of 12");
        assert_eq!(attempts(RowStatus::InFlight, Some(12)), "3 of 12");
        assert_eq!(attempts(RowStatus::Failed, None), "3");
        assert_eq!([RowStatus::Parked, RowStatus::Sent].map(|status| attempts(status, Some(12))), ["3", "3"]);
    }
}
