//! `outbox show`: everything about one row: its state, why it is in it, and the record that it publishes.
use api::{OutboxRecordDocument, pretty_json, row_diagnosis_document, row_document, row_record_document};
use app::error::QueryError;
use app::operators::outbox::OutboxOperations;
use app::port_types::RowId;
use domain::RegionId;
use posthaste::Config;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::explain::explanation;
use super::why::diagnose_row;
use crate::cli::failure::Failure;
use crate::cli::output::field_list::FieldList;
use crate::cli::output::format::OutputFormat;
use crate::cli::output::print_line;
use crate::cli::output::table::printable;
use crate::cli::output::terminal::{TerminalFeatures, TextStyle};

/// The output of `outbox show` with `--json`.
#[derive(Serialize)]
struct ShownRow {
    #[serde(flatten)]
    row: Value,
    record: Option<OutboxRecordDocument>,
    why: Value,
}

pub(super) async fn show(
    config: &Config,
    operations: &OutboxOperations,
    id: RowId,
    format: OutputFormat,
) -> Result<(), Failure> {
    let diagnosis = diagnose_row(operations, id).await?;
    let record = match operations.event(id).await {
        Ok(event) => Some(row_record_document(&event, &RegionId::new(&config.region.id))),
        Err(QueryError::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let now = operations.now();
    if format.is_json() {
        let (row, why) = (row_document(&diagnosis.row), row_diagnosis_document(&diagnosis, now));
        let document = serde_json::to_string(&ShownRow { row, record, why });
        return print_line(&document.expect("text and numbers always serialise"));
    }
    let terminal = TerminalFeatures::of_stdout();
    let record = record_lines(record.as_ref(), terminal);
    print_line(&explanation(&diagnosis, config.broker.kind, now, &record, terminal).join("\n"))
}

/// The record: topic and sequence, headers, and the value with its lines.
fn record_lines(record: Option<&OutboxRecordDocument>, terminal: TerminalFeatures) -> Vec<String> {
    let Some(OutboxRecordDocument { topic, sequence, headers, value }) = record else {
        return vec!["  its event was deleted".to_owned()];
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let heading = |name: &str| terminal.styled(name, TextStyle::Bold);
    let mut fields = FieldList::default();
    fields.add("topic", topic);
    fields.add("sequence", sequence);
    let mut lines = vec![heading("record")];
    lines.extend(fields.lines(terminal));
    lines.push(heading("headers"));
    lines.extend(headers.iter().map(|(name, value)| format!("  {name}: {}", text(value))));
    lines.push(heading("value"));
    let value = match value.as_deref().map(RawValue::get) {
        None => "the payload was deleted".to_owned(),
        Some(json) => serde_json::from_str(json).ok().or_else(|| pretty_json(json)).unwrap_or_else(|| json.to_owned()),
    };
    // Text of any publisher: a control character could change what the terminal shows.
    lines.extend(value.lines().map(|line| format!("  {}", printable(line))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(value: Option<&str>) -> String {
        let value = value.map(|json| RawValue::from_string(json.to_owned()).expect("JSON"));
        let headers = [("x-sequence".to_owned(), "1".into())].into_iter().collect();
        let record = OutboxRecordDocument { topic: "order.events".into(), sequence: 1, headers, value };
        record_lines(Some(&record), TerminalFeatures::PIPE).join("\n")
    }

    #[test]
    fn a_record_is_shown_with_headers_and_pretty_value() {
        let expected = "record\n  topic     order.events\n  sequence  1\nheaders\n  x-sequence: 1\nvalue\n  {\n    \"version\": 0.10\n  }";
        assert_eq!(lines_of(Some(r#"{"version":0.10}"#)), expected);
        assert!(lines_of(None).ends_with("the payload was deleted"));
        assert_eq!(record_lines(None, TerminalFeatures::PIPE), ["  its event was deleted"]);
        assert!(lines_of(Some(r#""one\n\u001b[2Jtwo""#)).ends_with("  one\n   [2Jtwo"));
    }
}
