//! `outbox why`: explains why an event has not been sent, or where it was sent.
use api::row_diagnosis_document;
use app::error::QueryError;
use app::operators::outbox::OutboxOperations;
use app::port_types::{EventKey, RowDiagnosis, RowId, RowSelector};
use domain::EventId;
use posthaste::config::BrokerKind;

use super::explain::explanation;
use super::rows::find_row;
use crate::cli::failure::Failure;
use crate::cli::output::format::OutputArguments;
use crate::cli::output::print_line;
use crate::cli::output::terminal::TerminalFeatures;
use crate::cli::value_parsers::{event_id, event_key};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selector: SelectorArguments,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SelectorArguments {
    /// The id of a row, or of an event, or a key such as an order id. Of a key, its first waiting event.
    #[arg(value_name = "ID|KEY|EVENT", value_parser = target)]
    target: Option<DiagnosisTarget>,
    /// Explain the first waiting event of this key, such as an order id.
    #[arg(short, long, value_parser = event_key)]
    key: Option<EventKey>,
    /// Explain the event with this id.
    #[arg(short, long, value_parser = event_id)]
    event: Option<EventId>,
}

/// The object of the positional argument. An order id, which is a key, and an event id have the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DiagnosisTarget {
    Row(RowId),
    KeyOrEvent(EventKey, Option<EventId>),
}

fn target(text: &str) -> Result<DiagnosisTarget, String> {
    match text.parse().ok().filter(|id| *id >= 0) {
        Some(row) => Ok(DiagnosisTarget::Row(row)),
        None => event_key(text).map(|key| DiagnosisTarget::KeyOrEvent(key, EventId::parse(text))),
    }
}

pub(super) async fn why(
    operations: &OutboxOperations,
    broker: BrokerKind,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let diagnosis = diagnose(operations, &arguments.selector).await?;
    let now = operations.now();
    if arguments.output.is_json() {
        return print_line(&row_diagnosis_document(&diagnosis, now).to_string());
    }
    print_line(&explanation(&diagnosis, broker, now, &[], TerminalFeatures::of_stdout()).join("\n"))
}

async fn diagnose(operations: &OutboxOperations, selector: &SelectorArguments) -> Result<RowDiagnosis, Failure> {
    let named = |selector: RowSelector, name: String| async move {
        operations.diagnose(selector).await.map_err(|error| Failure::querying(error, name))
    };
    match selector {
        SelectorArguments { key: Some(key), .. } => {
            named(RowSelector::Key(key.clone()), format!("an event of key {key}")).await
        }
        SelectorArguments { event: Some(event), .. } => {
            named(RowSelector::Event(*event), format!("event {event}")).await
        }
        SelectorArguments { target: Some(DiagnosisTarget::Row(id)), .. } => diagnose_row(operations, *id).await,
        SelectorArguments { target: Some(DiagnosisTarget::KeyOrEvent(key, event)), .. } => {
            match (operations.diagnose(RowSelector::Key(key.clone())).await, event) {
                (Err(QueryError::NotFound), Some(event)) => {
                    named(RowSelector::Event(*event), format!("an event of key {key}, or event {event},")).await
                }
                (diagnosed, _) => diagnosed.map_err(|error| Failure::querying(error, format!("an event of key {key}"))),
            }
        }
        SelectorArguments { target: None, key: None, event: None } => {
            Err(Failure::new("give the id of a row, a key or the id of an event"))
        }
    }
}

/// The diagnosis of one row; of its key where its event was deleted.
pub(super) async fn diagnose_row(operations: &OutboxOperations, id: RowId) -> Result<RowDiagnosis, Failure> {
    let row = find_row(operations, id).await?;
    match operations.diagnose(RowSelector::Event(row.event_id)).await {
        Err(QueryError::NotFound) => Ok(operations.diagnose(RowSelector::Key(row.key)).await?),
        diagnosed => Ok(diagnosed?),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::KEY;
    use super::*;

    #[test]
    fn a_target_is_the_number_of_a_row_or_a_key_that_may_be_an_event() {
        assert_eq!(target("6"), Ok(DiagnosisTarget::Row(6)));
        assert!(matches!(target(KEY), Ok(DiagnosisTarget::KeyOrEvent(key, Some(_))) if key.to_string() == KEY));
        for text in ["-1", "x", "customer 7"] {
            assert_eq!(target(text), Ok(DiagnosisTarget::KeyOrEvent(EventKey::from_text(text), None)));
        }
        assert!(target("").is_err_and(|refused| refused.contains("must not be empty")));
    }
}
