//! A diagnosis as a sentence, and the next step of an operator.
use app::port_types::{RowDiagnosis, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::format::optional_time;

/// Why the row is in its state.
pub(super) fn sentence(diagnosis: &RowDiagnosis, now: Timestamp) -> Markup {
    let row = &diagnosis.row;
    html! {
        @if let Some(head) = &diagnosis.head {
            "Blocked by " a href={ "/console/outbox/" (head.id) } { "row " (head.id) } " of the same key, which is " (head.status.as_str()) "."
        } @else {
            @match row.status {
                RowStatus::Sent => "The event was sent.",
                RowStatus::InFlight => "The owner of the partition is publishing it.",
                RowStatus::Parked => { "Its retries have stopped" @if let Some(reason) = &row.last_failure_reason { ": " (reason) } "." },
                RowStatus::Failed => { "It will be retried " (optional_time(row.next_attempt_at, now)) "." },
                RowStatus::Pending => "It will be published.",
            }
        }
    }
}

/// The operator's next step, with the command; nothing where the service continues by itself.
pub(super) fn next_step(diagnosis: &RowDiagnosis) -> Markup {
    let row = &diagnosis.row;
    let (text, command) = match (&diagnosis.head, row.status) {
        (Some(head), _) if head.status == RowStatus::Parked => {
            ("Next: remove the cause, then retry the row that blocks this one.", retry_command(head.id))
        }
        (None, RowStatus::Parked) => ("Next: remove the cause, then retry the row.", retry_command(row.id)),
        (None, RowStatus::Pending) if diagnosis.owner.is_none() => (
            "Next: the partition has no owner; check that an instance with a publisher runs.",
            "posthaste outbox partitions".to_owned(),
        ),
        _ => return html! {},
    };
    html! { div class="next" { p { (text) } pre { code { (command) } } } }
}

fn retry_command(id: i64) -> String {
    format!("posthaste outbox retry {id} --reason 'the cause is removed'")
}
