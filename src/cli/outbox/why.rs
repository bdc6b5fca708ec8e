//! `outbox why`: why an event has not left, or where it went.
use api::row_diagnosis_document;
use app::operate::Operations;
use app::seen::{RowDiagnosis, RowSelector, RowStatus};
use domain::{EventId, OrderId, Timestamp};
use posthaste::config::BrokerKind;

use super::super::values::{event_id, order_id};
use super::super::{Failure, line};
use super::look::print_row;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    whose: Asked,
    /// As a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Asked {
    /// The order whose first waiting event is meant.
    #[arg(long, value_parser = order_id)]
    key: Option<OrderId>,
    /// The event.
    #[arg(long, value_parser = event_id)]
    event: Option<EventId>,
}

impl Asked {
    /// Whose event is meant, and how to say it was not found.
    fn whose(&self) -> Result<(RowSelector, String), Failure> {
        match *self {
            Asked { key: Some(key), .. } => Ok((RowSelector::Key(key), format!("an event of order {key}"))),
            Asked { event: Some(event), .. } => Ok((RowSelector::Event(event), format!("event {event}"))),
            Asked { key: None, event: None } => Err(Failure::new("give --key or --event")),
        }
    }
}

pub(super) async fn why(operations: &Operations, broker: BrokerKind, arguments: &Arguments) -> Result<(), Failure> {
    let (whose, named) = arguments.whose.whose()?;
    let standing = operations.why(whose).await.map_err(|error| Failure::about(error, named))?;
    let now = operations.now();
    if arguments.json {
        return line(&row_diagnosis_document(&standing, now).to_string());
    }
    print(&standing, broker, now)
}

fn print(standing: &RowDiagnosis, broker: BrokerKind, now: Timestamp) -> Result<(), Failure> {
    let RowDiagnosis { row, head, owner, epoch, deaths, sent_to, .. } = standing;
    line(standing.verdict(now))?;
    print_row(row, false)?;
    match (sent_to, head) {
        (Some(place), _) => line(&format!("it left: {} {}/{}", place.topic, place.partition, place.offset))?,
        (None, Some(head)) => {
            line("it waits behind an earlier event of its order:")?;
            print_row(head, false)?;
        }
        (None, None) => {}
    }
    let named = owner.as_ref().map_or("nobody".to_owned(), ToString::to_string);
    line(&format!(
        "its partition {} is owned by {named}, epoch {epoch}; its claimer died {deaths} times",
        row.partition
    ))?;
    held_up(row.status, broker, owner.is_some()).map_or(Ok(()), line)
}

/// What holds up every event of the partition, as far as it can be known from beside the services.
fn held_up(status: RowStatus, broker: BrokerKind, owned: bool) -> Option<&'static str> {
    match (status, broker) {
        (RowStatus::Sent, _) => None,
        (_, BrokerKind::None) => Some("no broker is configured (broker.kind = none), so nothing leaves"),
        (_, BrokerKind::Embedded | BrokerKind::Kafka) if owned => None,
        (_, BrokerKind::Embedded | BrokerKind::Kafka) => {
            Some("no instance runs on this store, or none has taken this partition yet")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_away_is_explained() {
        let cases = [
            (RowStatus::Pending, BrokerKind::None, true, Some("broker.kind = none")),
            (RowStatus::Pending, BrokerKind::None, false, Some("broker.kind = none")),
            (RowStatus::Pending, BrokerKind::Kafka, false, Some("no instance runs")),
            (RowStatus::Failed, BrokerKind::Embedded, false, Some("no instance runs")),
            (RowStatus::Pending, BrokerKind::Kafka, true, None),
            (RowStatus::Sent, BrokerKind::None, false, None),
        ];
        for (status, broker, owned, told) in cases {
            let held_up = held_up(status, broker, owned);
            let as_told = told.map_or(held_up.is_none(), |told| held_up.is_some_and(|text| text.contains(told)));
            assert!(as_told, "{status:?} {broker:?} {owned}: {held_up:?}");
        }
    }
}
