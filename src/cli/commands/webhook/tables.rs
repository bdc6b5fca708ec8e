//! Webhooks, their deliveries and their dead letters as tables.
use serde_json::Value;

use crate::cli::output::table::{TableCell, TableColumn, table, table_row};
use crate::cli::output::terminal::{TerminalFeatures, TextStyle};

const WEBHOOKS: [TableColumn; 5] = [
    TableColumn::text("ID"),
    TableColumn::text("STATE"),
    TableColumn::text("TOPICS").drop_priority(2),
    TableColumn::text("LAST DELIVERY").drop_priority(1),
    TableColumn::wrapped("URL"),
];

const DELIVERIES: [TableColumn; 7] = [
    TableColumn::text("AT"),
    TableColumn::text("OUTCOME"),
    TableColumn::number("STATUS"),
    TableColumn::number("ATTEMPT"),
    TableColumn::text("TYPE").drop_priority(2),
    TableColumn::text("KEY").drop_priority(1),
    TableColumn::wrapped("ERROR"),
];

const DEAD_LETTERS: [TableColumn; 7] = [
    TableColumn::text("DEAD LETTER"),
    TableColumn::text("AT").drop_priority(3),
    TableColumn::text("REDRIVEN"),
    TableColumn::number("STATUS"),
    TableColumn::text("TYPE").drop_priority(2),
    TableColumn::text("KEY").drop_priority(1),
    TableColumn::wrapped("REASON"),
];

pub(super) fn webhooks_table(webhooks: &[Value], terminal: TerminalFeatures) -> String {
    let row = |webhook: &Value| -> Vec<TableCell> {
        let (state, style) = match (webhook["active"].as_bool(), webhook["disabledReason"].as_str()) {
            (Some(true), _) => ("active", TextStyle::Success),
            (_, Some(_)) => ("disabled", TextStyle::Error),
            _ => ("inactive", TextStyle::Warning),
        };
        let topics: Vec<&str> = webhook["topics"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let last = webhook["lastDelivery"]["outcome"].as_str().unwrap_or("-");
        table_row![text(webhook, "id"), TableCell::styled(state, style), topics.join(","), last, text(webhook, "url")]
    };
    table(&WEBHOOKS, &webhooks.iter().map(row).collect::<Vec<_>>(), terminal)
}

pub(super) fn deliveries_table(deliveries: &[Value], terminal: TerminalFeatures) -> String {
    let row = |delivery: &Value| -> Vec<TableCell> {
        let outcome = text(delivery, "outcome");
        let style = match outcome {
            "delivered" => TextStyle::Success,
            "retried" => TextStyle::Warning,
            _ => TextStyle::Error,
        };
        let status = delivery["status"].as_u64().map_or("-".to_owned(), |status| status.to_string());
        table_row![
            text(delivery, "at"),
            TableCell::styled(outcome, style),
            status,
            delivery["attempt"].as_u64().unwrap_or_default(),
            text(delivery, "type"),
            text(delivery, "key"),
            text(delivery, "error"),
        ]
    };
    table(&DELIVERIES, &deliveries.iter().map(row).collect::<Vec<_>>(), terminal)
}

pub(super) fn dead_letters_table(dead_letters: &[Value], terminal: TerminalFeatures) -> String {
    let row = |dead_letter: &Value| -> Vec<TableCell> {
        let status = dead_letter["status"].as_u64().map_or("-".to_owned(), |status| status.to_string());
        table_row![
            text(dead_letter, "position"),
            text(dead_letter, "at"),
            if dead_letter["redriven"] == true { "yes" } else { "no" },
            status,
            text(dead_letter, "type"),
            text(dead_letter, "key"),
            text(dead_letter, "reason"),
        ]
    };
    table(&DEAD_LETTERS, &dead_letters.iter().map(row).collect::<Vec<_>>(), terminal)
}

/// A text of a response; empty where it is absent.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_and_a_delivery_are_a_line_each() {
        let webhook = json!({"id": "0190", "active": false, "disabledReason": "410", "topics": ["a", "b"], "url": "https://x/",
            "lastDelivery": {"outcome": "retried"}});
        let delivery = json!({"at": "t", "outcome": "retried", "status": 503, "attempt": 2, "type": "A", "key": "k", "error": "status 503"});

        assert_eq!(
            webhooks_table(&[webhook], TerminalFeatures::PIPE),
            "ID    STATE     TOPICS  LAST DELIVERY  URL\n0190  disabled  a,b     retried        https://x/"
        );
        let dead_letter = json!({"position": "3/17", "at": "t", "redriven": false, "status": 503, "type": "A", "key": "k", "reason": "status 503"});
        assert_eq!(
            dead_letters_table(&[dead_letter], TerminalFeatures::PIPE),
            "DEAD LETTER  AT  REDRIVEN  STATUS  TYPE  KEY  REASON\n3/17         t   no           503  A     k    status 503"
        );
        assert_eq!(
            deliveries_table(&[delivery], TerminalFeatures::PIPE),
            "AT  OUTCOME  STATUS  ATTEMPT  TYPE  KEY  ERROR\nt   retried     503        2  A     k    status 503"
        );
    }
}
