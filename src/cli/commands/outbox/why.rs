//! `outbox why`: explains why an event has not been sent, or where it was sent.
use api::row_diagnosis_document;
use app::operators::outbox::Operations;
use app::port_types::{RowDiagnosis, RowSelector, RowStatus};
use domain::{EventId, OrderId, Timestamp};
use posthaste::config::BrokerKind;

use super::super::super::failure::Failure;
use super::super::super::output::print_line;
use super::super::super::value_parsers::{event_id, order_id};
use super::rows::print_row;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selector: SelectorArguments,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SelectorArguments {
    /// Explain the first waiting event of this order.
    #[arg(long, value_parser = order_id)]
    key: Option<OrderId>,
    /// Explain the event with this id.
    #[arg(long, value_parser = event_id)]
    event: Option<EventId>,
}

impl SelectorArguments {
    /// The selector, and its description for the error that no row was found.
    fn selector(&self) -> Result<(RowSelector, String), Failure> {
        match *self {
            SelectorArguments { key: Some(key), .. } => Ok((RowSelector::Key(key), format!("an event of order {key}"))),
            SelectorArguments { event: Some(event), .. } => Ok((RowSelector::Event(event), format!("event {event}"))),
            SelectorArguments { key: None, event: None } => Err(Failure::new("give --key or --event")),
        }
    }
}

pub(super) async fn why(operations: &Operations, broker: BrokerKind, arguments: &Arguments) -> Result<(), Failure> {
    let (selector, name) = arguments.selector.selector()?;
    let diagnosis = operations.diagnose(selector).await.map_err(|error| Failure::querying(error, name))?;
    let now = operations.now();
    if arguments.json {
        return print_line(&row_diagnosis_document(&diagnosis, now).to_string());
    }
    print(&diagnosis, broker, now)
}

fn print(diagnosis: &RowDiagnosis, broker: BrokerKind, now: Timestamp) -> Result<(), Failure> {
    let RowDiagnosis { row, head, owner, epoch, deaths, sent_to, .. } = diagnosis;
    print_line(diagnosis.verdict(now))?;
    print_row(row, false)?;
    match (sent_to, head) {
        (Some(position), _) => {
            print_line(&format!("it was sent to {} {}/{}", position.topic, position.partition, position.offset))?;
        }
        (None, Some(head)) => {
            print_line("it waits for an earlier event of its order:")?;
            print_row(head, false)?;
        }
        (None, None) => {}
    }
    let owner_name = owner.as_ref().map_or("no instance".to_owned(), ToString::to_string);
    print_line(&format!(
        "its partition {} is owned by {owner_name}, epoch {epoch}; {deaths} claims of this row ended with the claimer's death",
        row.partition
    ))?;
    partition_block(row.status, broker, owner.is_some()).map_or(Ok(()), print_line)
}

/// Why no event of the whole partition is sent; `None` if neither the configuration nor the lease prevents it.
fn partition_block(status: RowStatus, broker: BrokerKind, owned: bool) -> Option<&'static str> {
    match (status, broker) {
        (RowStatus::Sent, _) => None,
        (_, BrokerKind::None) => Some("no broker is configured (broker.kind = none), so nothing is sent"),
        (_, BrokerKind::Embedded | BrokerKind::Kafka) if owned => None,
        (_, BrokerKind::Embedded | BrokerKind::Kafka) => {
            Some("no instance runs on this store, or none has acquired this partition yet")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_partition_is_explained() {
        let cases = [
            (RowStatus::Pending, BrokerKind::None, true, Some("broker.kind = none")),
            (RowStatus::Pending, BrokerKind::None, false, Some("broker.kind = none")),
            (RowStatus::Pending, BrokerKind::Kafka, false, Some("no instance runs")),
            (RowStatus::Failed, BrokerKind::Embedded, false, Some("no instance runs")),
            (RowStatus::Pending, BrokerKind::Kafka, true, None),
            (RowStatus::Sent, BrokerKind::None, false, None),
        ];
        for (status, broker, owned, expected) in cases {
            let block = partition_block(status, broker, owned);
            let as_expected = expected.map_or(block.is_none(), |part| block.is_some_and(|text| text.contains(part)));
            assert!(as_expected, "{status:?} {broker:?} {owned}: {block:?}");
        }
    }
}
