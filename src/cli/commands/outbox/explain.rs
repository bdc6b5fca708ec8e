//! The state of a row in words: why it is in it, its fields, and the command to run next.
use api::shell_quoted;
use app::contract::rfc3339;
use app::port_types::{PartitionBlock, RowDiagnosis, RowStatus, RowView};
use domain::Timestamp;
use posthaste::config::BrokerKind;

use super::rows::status_style;
use crate::cli::output::field_list::FieldList;
use crate::cli::output::terminal::TerminalFeatures;
use crate::cli::output::time::relative;
use crate::cli::output::wrap::wrap;

/// The explanation, line by line: the verdict with its reason, the fields of the row, `extra` lines, and the command to run next.
pub(super) fn explanation(
    diagnosis: &RowDiagnosis,
    broker: BrokerKind,
    now: Timestamp,
    extra: &[String],
    terminal: TerminalFeatures,
) -> Vec<String> {
    let verdict = diagnosis.verdict(now);
    let coloured = terminal.styled(verdict, status_style(diagnosis.row.status));
    // Colour has no width, so the line is broken before it is coloured.
    let sentence = wrap(&format!("{verdict}: {}", reason(diagnosis, broker, now)), terminal.width, 2);
    let mut lines = vec![sentence.replacen(verdict, &coloured, 1)];
    lines.extend(fields(diagnosis, now).lines(terminal));
    lines.extend(extra.iter().cloned());
    lines.extend(next_step(diagnosis, broker, now).map(|command| format!("→ {command}")));
    lines
}

/// Why the row is in its state, as the end of a sentence.
fn reason(diagnosis: &RowDiagnosis, broker: BrokerKind, now: Timestamp) -> String {
    let RowDiagnosis { row, head, sent_to, .. } = diagnosis;
    match (row.status, head) {
        (RowStatus::Sent, _) => match sent_to {
            Some(sent_to) => format!("the broker has it in {sent_to}"),
            None => "the broker has it".to_owned(),
        },
        (RowStatus::InFlight, _) => "it is being published".to_owned(),
        (RowStatus::Parked, _) => "it is not retried, an operator decides".to_owned(),
        (RowStatus::Pending | RowStatus::Failed, Some(head)) => {
            format!("it waits for an earlier event of its key, row {}, which is {}", head.id, head.status.as_str())
        }
        (RowStatus::Pending | RowStatus::Failed, None) => {
            match (partition_block(diagnosis, broker), row.due_later(now)) {
                (Some(block), _) => block.as_str().to_owned(),
                (None, Some(due)) => format!("its next attempt is due {}", relative(due, now)),
                (None, None) => {
                    "it is due, its worker claims it with the next batch, unless the broker's circuit breaker is open"
                        .to_owned()
                }
            }
        }
    }
}

fn partition_block(diagnosis: &RowDiagnosis, broker: BrokerKind) -> Option<PartitionBlock> {
    diagnosis.partition_block(match broker {
        BrokerKind::None => false,
        BrokerKind::Embedded | BrokerKind::Kafka => true,
    })
}

fn fields(diagnosis: &RowDiagnosis, now: Timestamp) -> FieldList {
    let RowDiagnosis { row, head, owner, deaths, sent_to, by_fallback, .. } = diagnosis;
    let at = |at: Timestamp| format!("{} ({})", rfc3339(at), relative(at, now));
    let mut fields = FieldList::default();
    fields.add("row", row.id);
    fields.add("event", row.event_id);
    fields.add("type", &row.event_type);
    fields.add("key", &row.key);
    let owner = owner.as_ref().map_or("owned by no instance".to_owned(), |owner| format!("owned by {owner}"));
    fields.add("partition", format!("{}, {owner}", row.partition));
    fields.add("created", at(row.created_at));
    fields.add_some("attempts", Some(row.retry_count).filter(|count| *count > 0));
    fields.add_some("last attempt", row.last_attempt_at.map(at));
    fields.add_some("next attempt", row.next_attempt_at.map(at));
    let failure = row.failure_type.map(|failure| failure.as_str());
    fields.add_some("failure type", failure);
    fields.add_some("last failure reason", row.last_failure_reason.as_deref());
    if *deaths > 0 {
        fields.add("crashes", format!("{deaths} of the worker or the process, while it sent this event"));
    }
    fields.add_some("waits for", head.as_ref().map(waits_for));
    fields.add_some("sent", row.sent_at.map(at));
    fields.add_some("sent to", sent_to.as_ref());
    if *by_fallback {
        fields.add("by fallback", "it was sent by the fallback of its type");
    }
    fields
}

fn waits_for(head: &RowView) -> String {
    let reason = head.last_failure_reason.as_deref().map(|reason| format!(", {reason}")).unwrap_or_default();
    format!("row {}, {}, {}{reason}", head.id, head.status.as_str(), head.event_type)
}

/// The command that changes the row's state, or that shows its cause; `None` where the row is sent without an operator.
fn next_step(diagnosis: &RowDiagnosis, broker: BrokerKind, now: Timestamp) -> Option<String> {
    let RowDiagnosis { row, head, sent_to, .. } = diagnosis;
    let retry = |id| format!("posthaste outbox retry {id} --reason TEXT");
    match (row.status, head) {
        (RowStatus::Sent, _) => {
            let key = shell_quoted(&row.key.to_text());
            sent_to.as_ref().map(|to| format!("posthaste topic tail {} --from-beginning --key {key}", to.topic))
        }
        (RowStatus::InFlight, _) => Some(format!("posthaste outbox why {}", row.id)),
        (RowStatus::Parked, _) => Some(retry(row.id)),
        (RowStatus::Pending | RowStatus::Failed, Some(head)) => Some(match head.status {
            RowStatus::Parked => retry(head.id),
            RowStatus::Pending | RowStatus::InFlight | RowStatus::Failed | RowStatus::Sent => {
                format!("posthaste outbox why {}", head.id)
            }
        }),
        (RowStatus::Pending | RowStatus::Failed, None) => {
            if partition_block(diagnosis, broker).is_some() {
                return Some("posthaste doctor".to_owned());
            }
            row.due_later(now).map(|_| retry(row.id))
        }
    }
}

#[cfg(test)]
mod tests {
    use app::port_types::{EventKey, InstanceId, RecordLocation};

    use super::super::fixture::{KEY, diagnosis, parked_row};
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(302_000);

    fn row(status: RowStatus) -> RowView {
        RowView { status, ..parked_row() }
    }

    #[test]
    fn key_of_the_suggested_command_is_one_argument_of_a_shell() {
        let sent_to = RecordLocation { topic: "customers".into(), partition_offset: Some((3, 17)) };
        let row = RowView { key: EventKey::from_text("it's customer 7"), ..row(RowStatus::Sent) };
        let sent = RowDiagnosis { sent_to: Some(sent_to), ..diagnosis(row) };

        let command = next_step(&sent, BrokerKind::Kafka, NOW).expect("a command");

        assert_eq!(command, r"posthaste topic tail customers --from-beginning --key 'it'\''s customer 7'");
    }

    #[test]
    fn a_parked_row_is_explained_with_the_command_that_retries_it() {
        let lines = explanation(&diagnosis(parked_row()), BrokerKind::Embedded, NOW, &[], TerminalFeatures::PIPE);

        let event = parked_row().event_id;
        let expected = format!(
            "PARKED: it is not retried, an operator decides\n  \
               row                  6\n  \
               event                {event}\n  \
               type                 ORDER_CREATED\n  \
               key                  {KEY}\n  \
               partition            7, owned by no instance\n  \
               created              1970-01-01T00:00:01.000Z (5 min 1 s ago)\n  \
               attempts             12\n  \
               last attempt         1970-01-01T00:00:02.000Z (5 min ago)\n  \
               failure type         NETWORK\n  \
               last failure reason  connection refused\n\
             → posthaste outbox retry 6 --reason TEXT"
        );
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn each_state_has_its_reason_and_its_next_step() {
        let later = Some(Timestamp::from_millis(307_000));
        let waiting = RowView { next_attempt_at: later, ..row(RowStatus::Failed) };
        let owned = |row: RowView| RowDiagnosis { owner: Some(InstanceId("one".into())), ..diagnosis(row) };
        let behind = |head: RowStatus| RowDiagnosis {
            head: Some(RowView { id: 5, ..row(head) }),
            ..owned(row(RowStatus::Pending))
        };
        let sent_to = RecordLocation { topic: "order.events".into(), partition_offset: Some((3, 17)) };
        let sent = RowDiagnosis { sent_to: Some(sent_to), ..owned(row(RowStatus::Sent)) };
        let cases = [
            (diagnosis(waiting.clone()), BrokerKind::None, "broker.kind = none", Some("posthaste doctor")),
            (
                diagnosis(row(RowStatus::Pending)),
                BrokerKind::Kafka,
                "no instance that relays",
                Some("posthaste doctor"),
            ),
            (diagnosis(waiting.clone()), BrokerKind::Embedded, "no instance that relays", Some("posthaste doctor")),
            (owned(waiting), BrokerKind::Kafka, "is due in 5 s", Some("posthaste outbox retry 6 ")),
            (owned(row(RowStatus::Pending)), BrokerKind::Kafka, "claims it with the next batch", None),
            (behind(RowStatus::Parked), BrokerKind::Kafka, "row 5, which is PARKED", Some("posthaste outbox retry 5 ")),
            (behind(RowStatus::Failed), BrokerKind::Kafka, "row 5, which is FAILED", Some("posthaste outbox why 5")),
            (owned(row(RowStatus::InFlight)), BrokerKind::Kafka, "being published", Some("posthaste outbox why 6")),
            (sent, BrokerKind::None, "in order.events 3/17", Some("posthaste topic tail order.events ")),
        ];
        for (diagnosis, broker, reason, step) in cases {
            let lines = explanation(&diagnosis, broker, NOW, &[], TerminalFeatures::PIPE);
            assert!(lines[0].contains(reason), "{reason} is missing in: {}", lines[0]);
            let last = lines.last().filter(|line| line.starts_with("→ ")).map(|line| line.trim_start_matches("→ "));
            assert_eq!(last.is_some(), step.is_some(), "{lines:?}");
            assert!(step.is_none_or(|step| last.is_some_and(|last| last.starts_with(step))), "{lines:?}");
        }
    }

    #[test]
    fn crashes_are_shown_only_where_there_were_some() {
        let crashed = RowDiagnosis { deaths: 2, ..diagnosis(parked_row()) };
        let text = |diagnosis: &RowDiagnosis| {
            explanation(diagnosis, BrokerKind::Kafka, NOW, &[], TerminalFeatures::PIPE).join("\n")
        };

        assert!(
            text(&crashed).contains("crashes              2 of the worker or the process, while it sent this event")
        );
        assert!(!text(&diagnosis(parked_row())).contains("crashes"));
    }
}
