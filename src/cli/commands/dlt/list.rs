//! Prints dead letters as a table or as JSON.
use api::{dead_letter_document, pretty_json};
use app::consume::order_topic::OrderTopic;
use app::contract::rfc3339;
use app::error::QueryError;
use app::operators::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetterPosition, DeadLetters};
use app::operators::dead_letters_by_topic::{DeadLettersByTopic, WaitingDeadLetters};
use app::port_types::FailureType;

use crate::cli::failure::Failure;
use crate::cli::output::format::OutputFormat;
use crate::cli::output::table::{TableCell, TableColumn, table, table_row};
use crate::cli::output::terminal::{TerminalFeatures, TextStyle};
use crate::cli::output::{print_line, print_message};

/// Most dead letters of another topic that are counted.
const WAITING_MAX: u32 = 1_000;

const COLUMNS: [TableColumn; 7] = [
    TableColumn::number("POSITION"),
    TableColumn::text("TIMESTAMP").drop_priority(5),
    TableColumn::text("TYPE").drop_priority(3),
    TableColumn::text("KEY"),
    TableColumn::text("FAILURE TYPE").drop_priority(4),
    TableColumn::wrapped("REASON").drop_priority(2),
    TableColumn::wrapped("REDRIVEN").drop_priority(1),
];

pub(super) async fn list(
    dead_letters: &DeadLetters,
    filter: DeadLetterFilter,
    limit: u32,
    format: OutputFormat,
    orders: &OrderTopic,
) -> Result<(), Failure> {
    let DeadLetterPage { dead_letters: found, next } = first(dead_letters, filter, limit).await?;
    if found.is_empty() && next.is_none() {
        print_message(format_args!("no dead letters match in {}", dead_letters.topic()));
    } else if format.is_json() {
        found.iter().try_for_each(|dead_letter| print_dead_letter(dead_letter, orders, format))?;
    } else if !found.is_empty() {
        print_line(&dead_letters_table(&found, TerminalFeatures::of_stdout()))?;
    }
    if let Some(next) = next {
        print_message(format_args!("more: --after {next}"));
    }
    Ok(())
}

/// Names the other topics whose dead letters wait, on stderr: an operator may not know of them.
pub(super) async fn print_other_topics(by_topic: &DeadLettersByTopic, listed: &str) -> Result<(), Failure> {
    let waiting = by_topic.waiting(WAITING_MAX).await?;
    for WaitingDeadLetters { topic, waiting, more } in waiting.iter().filter(|other| other.topic != listed) {
        print_message(format_args!(
            "{}{waiting} of {topic} were not sent back yet: --topic {topic}",
            if *more { "at least " } else { "" }
        ));
    }
    Ok(())
}

/// The first dead letters that match, at most `limit`, and the cursor of those after them.
pub(super) async fn first(
    dead_letters: &DeadLetters,
    mut filter: DeadLetterFilter,
    limit: u32,
) -> Result<DeadLetterPage, Failure> {
    let mut found = DeadLetterPage { dead_letters: Vec::new(), next: None };
    while found.dead_letters.len() < limit as usize {
        let page = dead_letters.list(&filter, limit - found.dead_letters.len() as u32).await?;
        found.dead_letters.extend(page.dead_letters);
        found.next = page.next;
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    Ok(found)
}

pub(super) fn dead_letters_table(dead_letters: &[DeadLetter], terminal: TerminalFeatures) -> String {
    table(&COLUMNS, &dead_letters.iter().map(cells).collect::<Vec<_>>(), terminal)
}

fn cells(dead_letter: &DeadLetter) -> Vec<TableCell> {
    let DeadLetter { message, redrive } = dead_letter;
    let redriven = match redrive {
        Some(record) if record.confirmed => {
            TableCell::styled(format!("by {} at {}", record.audit.operator, rfc3339(record.at)), TextStyle::Success)
        }
        Some(record) => TableCell::styled(
            format!("running, by {} at {}", record.audit.operator, rfc3339(record.at)),
            TextStyle::Warning,
        ),
        None => "".into(),
    };
    table_row![
        format!("{}/{}", message.position.partition, message.position.offset),
        rfc3339(message.record.timestamp),
        dead_letter.event_type().unwrap_or("-"),
        &message.record.key,
        dead_letter.failure_type().map_or("-", FailureType::as_str),
        dead_letter.reason().unwrap_or("-"),
        redriven,
    ]
}

pub(super) fn print_dead_letter(
    dead_letter: &DeadLetter,
    orders: &OrderTopic,
    format: OutputFormat,
) -> Result<(), Failure> {
    let document = dead_letter_document(dead_letter, orders);
    let pretty = if format.is_json() { None } else { pretty_json(document.get()) };
    print_line(pretty.as_deref().unwrap_or(document.get()))
}

pub(super) fn not_found(error: QueryError, position: DeadLetterPosition, topic: &str) -> Failure {
    Failure::querying(error, format!("dead letter {position} of {topic}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_columns_show_who_sent_a_dead_letter_back() {
        let cells =
            ["0/17", "", "ORDER_CREATED", &"k".repeat(36), "NETWORK", "the endpoint answers 503", "by olga at noon"];
        let terminal = TerminalFeatures { width: Some(80), colour: false };

        let text = table(&COLUMNS, &[cells.iter().map(TableCell::from).collect()], terminal);

        let header = text.lines().next().unwrap_or_default();
        assert!(header.contains("KEY") && header.contains("REDRIVEN"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
