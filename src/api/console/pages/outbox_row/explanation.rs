//! A diagnosis as a sentence, and the next step of an operator.
use app::port_types::{PartitionBlock, RowDiagnosis, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::format::relative_time;

/// Why the row is in its state.
pub(super) fn sentence(diagnosis: &RowDiagnosis, broker_configured: bool, now: Timestamp) -> Markup {
    let row = &diagnosis.row;
    html! {
        @if let Some(head) = &diagnosis.head {
            "Blocked by " a href={ "/console/outbox/" (head.id) } { "row " (head.id) } " of the same key, which is " (head.status.as_str()) "."
        } @else {
            @match row.status {
                RowStatus::Sent => "The event was sent.",
                RowStatus::InFlight => "The owner of the partition is publishing it.",
                RowStatus::Parked => { "Its retries have stopped" @if let Some(reason) = &row.last_failure_reason { ": " (reason) } "." },
                RowStatus::Pending | RowStatus::Failed => {
                    @match (diagnosis.partition_block(broker_configured), row.due_later(now)) {
                        (Some(block), _) => { "It waits: " (block.as_str()) "." },
                        (None, Some(due)) => { "Its next attempt is due " (relative_time(due, now)) "." },
                        (None, None) => "It is due: its worker claims it with the next batch.",
                    }
                }
            }
        }
    }
}

/// The operator's next step, with the command; nothing where the service continues by itself.
pub(super) fn next_step(diagnosis: &RowDiagnosis, broker_configured: bool) -> Markup {
    let row = &diagnosis.row;
    let (text, command) = match (&diagnosis.head, row.status) {
        (Some(head), _) if head.status == RowStatus::Parked => {
            ("Next: remove the cause, then retry the row that blocks this one.", retry_command(head.id))
        }
        (None, RowStatus::Parked) => ("Next: remove the cause, then retry the row.", retry_command(row.id)),
        (None, RowStatus::Pending | RowStatus::Failed) => match diagnosis.partition_block(broker_configured) {
            Some(PartitionBlock::NoBroker) => {
                ("Next: set broker.kind, then restart the instances.", "posthaste doctor".to_owned())
            }
            Some(PartitionBlock::NoOwner) => (
                "Next: the partition has no owner; check that an instance with a publisher runs.",
                "posthaste outbox partitions".to_owned(),
            ),
            None => return html! {},
        },
        _ => return html! {},
    };
    html! { div class="next" { p { (text) } pre { code { (command) } } } }
}

fn retry_command(id: i64) -> String {
    format!("posthaste outbox retry {id} --reason 'the cause is removed'")
}

#[cfg(test)]
mod tests {
    use app::port_types::{EventKey, InstanceId, PartitionNo, RowView};
    use domain::EventId;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(302_000);

    fn waiting(status: RowStatus, owner: Option<&str>, next_attempt_at: Option<i64>) -> RowDiagnosis {
        let row = RowView {
            id: 6,
            event_id: EventId::new_v7(Timestamp::from_millis(1_000), [1; 10]),
            key: EventKey::from_text("k"),
            event_type: "ORDER_CREATED".into(),
            partition: PartitionNo(7),
            status,
            lease_owner: None,
            lease_version: 5,
            retry_count: 1,
            next_attempt_at: next_attempt_at.map(Timestamp::from_millis),
            last_attempt_at: None,
            failure_type: None,
            last_failure_reason: None,
            created_at: Timestamp::from_millis(1_000),
            sent_at: None,
        };
        let owner = owner.map(|owner| InstanceId(owner.into()));
        RowDiagnosis { row, head: None, owner, epoch: 4, deaths: 0, sent_to: None, by_fallback: false }
    }

    #[test]
    fn a_row_that_waits_says_for_what_and_what_an_operator_does() {
        use RowStatus::{Failed, Pending};
        let (failed, owned) = (|owner| waiting(Failed, owner, Some(182_000)), Some("one"));
        let cases = [
            (waiting(Failed, owned, Some(307_000)), true, "Its next attempt is due ", ""),
            (failed(owned), true, "It is due: ", ""),
            (waiting(Pending, owned, None), true, "It is due: ", ""),
            (failed(None), true, "It waits: no instance that relays", "posthaste outbox partitions"),
            (waiting(Pending, None, None), true, "It waits: no instance that relays", "posthaste outbox partitions"),
            (waiting(Pending, None, None), false, "It waits: no broker is configured", "set broker.kind"),
        ];
        for (diagnosis, broker_configured, expected, step) in cases {
            let text = sentence(&diagnosis, broker_configured, NOW).into_string();
            assert!(text.starts_with(expected) && !text.contains("ago"), "{text}");
            let next = next_step(&diagnosis, broker_configured).into_string();
            assert!(next.contains(step) && next.is_empty() == step.is_empty(), "{expected}: {next}");
        }
    }
}
