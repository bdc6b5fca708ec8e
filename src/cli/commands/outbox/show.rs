//! `outbox show`: everything about one row: its state, why it is in it, and the record that it publishes.
use api::{row_diagnosis_document, row_document, row_record_document};
use app::error::QueryError;
use app::operators::outbox::Operations;
use app::port_types::RowId;
use domain::RegionId;
use posthaste::Config;
use serde_json::Value;

use super::super::super::failure::Failure;
use super::super::super::output::facts::Facts;
use super::super::super::output::print_line;
use super::super::super::output::screen::{Screen, Tone};
use super::super::super::output::table::printable;
use super::explain::explanation;
use super::why::of_row;

pub(super) async fn show(config: &Config, operations: &Operations, id: RowId, json: bool) -> Result<(), Failure> {
    let diagnosis = of_row(operations, id).await?;
    let record = match operations.event(id).await {
        Ok(event) => row_record_document(&event, &RegionId::new(&config.region.id)),
        Err(QueryError::NotFound) => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let now = operations.now();
    if json {
        let mut document = row_document(&diagnosis.row);
        document["record"] = record;
        document["why"] = row_diagnosis_document(&diagnosis, now);
        return print_line(&document.to_string());
    }
    let screen = Screen::of_stdout();
    let record = record_lines(&record, screen);
    print_line(&explanation(&diagnosis, config.broker.kind, now, &record, screen).join("\n"))
}

/// The record: topic and sequence, headers, and the value with its lines.
fn record_lines(record: &Value, screen: Screen) -> Vec<String> {
    if record.is_null() {
        return vec!["  its event was deleted".to_owned()];
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let heading = |name: &str| screen.paint(name, Tone::Strong);
    let mut facts = Facts::default();
    facts.add("topic", text(&record["topic"]));
    facts.add("sequence", &record["sequence"]);
    let mut lines = vec![heading("record")];
    lines.extend(facts.lines(screen));
    lines.push(heading("headers"));
    let headers = record["headers"].as_object().into_iter().flatten();
    lines.extend(headers.map(|(name, value)| format!("  {name}: {}", text(value))));
    lines.push(heading("value"));
    let value = match &record["value"] {
        Value::Null => "the payload was deleted".to_owned(),
        Value::String(text) => text.clone(),
        value => format!("{value:#}"),
    };
    // Text of any publisher: a control character could change what the terminal shows.
    lines.extend(value.lines().map(|line| format!("  {}", printable(line))));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_shown_with_headers_and_pretty_value() {
        let record =
            json!({"topic": "order.events", "sequence": 1, "headers": {"x-sequence": "1"}, "value": {"version": 0}});

        let text = record_lines(&record, Screen::PIPE).join("\n");

        let expected = "record\n  topic     order.events\n  sequence  1\nheaders\n  x-sequence: 1\nvalue\n  {\n    \"version\": 0\n  }";
        assert_eq!(text, expected);
        let deleted = json!({"topic": "t", "sequence": 1, "headers": {}, "value": null});
        assert!(record_lines(&deleted, Screen::PIPE).join("\n").ends_with("the payload was deleted"));
        assert_eq!(record_lines(&Value::Null, Screen::PIPE), ["  its event was deleted"]);
        let hostile = json!({"topic": "t", "sequence": 1, "headers": {}, "value": "one\n\u{1b}[2Jtwo"});
        assert!(record_lines(&hostile, Screen::PIPE).join("\n").ends_with("  one\n   [2Jtwo"));
    }
}
