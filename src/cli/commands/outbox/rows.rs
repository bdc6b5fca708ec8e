//! Lists rows and partitions.
use api::{partition_document, row_document};
use app::contract::rfc3339;
use app::operators::outbox::OutboxOperations;
use app::port_types::{PartitionView, RowFilter, RowId, RowStatus, RowView};

use crate::cli::failure::Failure;
use crate::cli::output::format::OutputFormat;
use crate::cli::output::table::{TableCell, TableColumn, table, table_row};
use crate::cli::output::terminal::{TerminalFeatures, TextStyle};
use crate::cli::output::{print_line, print_message};

const ROW_COLUMNS: [TableColumn; 8] = [
    TableColumn::number("ID"),
    TableColumn::text("STATUS"),
    TableColumn::text("TYPE").drop_priority(2),
    TableColumn::text("KEY"),
    TableColumn::number("PARTITION").drop_priority(5),
    TableColumn::number("ATTEMPTS").drop_priority(4),
    TableColumn::text("NEXT ATTEMPT AT").drop_priority(3),
    TableColumn::wrapped("LAST FAILURE REASON").drop_priority(1),
];

const PARTITION_COLUMNS: [TableColumn; 7] = [
    TableColumn::number("PARTITION"),
    TableColumn::text("OWNER"),
    TableColumn::number("EPOCH"),
    TableColumn::number("COUNTER").drop_priority(2),
    TableColumn::number("IN FLIGHT").drop_priority(1),
    TableColumn::text("EXPIRES AT").drop_priority(3),
    TableColumn::number("DEPTH"),
];

pub(super) async fn list(
    operations: &OutboxOperations,
    mut filter: RowFilter,
    limit: u32,
    format: OutputFormat,
) -> Result<(), Failure> {
    let (mut rows, mut next) = (Vec::new(), None);
    while rows.len() < limit as usize {
        let page = operations.rows(&filter, limit - rows.len() as u32).await?;
        rows.extend(page.rows);
        next = page.next;
        let Some(last) = next else { break };
        filter.after = Some(last);
    }
    print_rows(&rows, &filter, format)?;
    if let Some(next) = next {
        print_message(format_args!("more: --after {next}"));
    }
    Ok(())
}

fn print_rows(rows: &[RowView], filter: &RowFilter, format: OutputFormat) -> Result<(), Failure> {
    if rows.is_empty() {
        print_message(format_args!("{}", none_match(filter)));
        return Ok(());
    }
    if format.is_json() {
        return rows.iter().try_for_each(|row| print_line(&row_document(row).to_string()));
    }
    print_line(&rows_table(rows, TerminalFeatures::of_stdout()))
}

/// The message on stderr for an empty list.
fn none_match(filter: &RowFilter) -> String {
    let RowFilter { status, key, partition, event_type, failure_type, older_than, after } = filter;
    let others = key.is_some()
        || partition.is_some()
        || event_type.is_some()
        || failure_type.is_some()
        || older_than.is_some()
        || after.is_some();
    match (status, others) {
        (Some(status), false) => format!("no rows are {}", status.as_str()),
        (Some(status), true) => format!("no rows that match are {}", status.as_str()),
        (None, false) => "the outbox has no rows".to_owned(),
        (None, true) => "no rows match".to_owned(),
    }
}

pub(super) fn rows_table(rows: &[RowView], terminal: TerminalFeatures) -> String {
    let cells = |row: &RowView| -> Vec<TableCell> {
        table_row![
            row.id,
            TableCell::styled(row.status.as_str(), status_style(row.status)),
            &row.event_type,
            &row.key,
            row.partition,
            row.retry_count,
            row.next_attempt_at.map(rfc3339).unwrap_or_default(),
            row.last_failure_reason.as_deref().unwrap_or_default(),
        ]
    };
    table(&ROW_COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>(), terminal)
}

/// The style of a row's status: a parked row needs an operator, a failed one is retried.
pub(super) fn status_style(status: RowStatus) -> TextStyle {
    match status {
        RowStatus::Sent => TextStyle::Success,
        RowStatus::Parked => TextStyle::Error,
        RowStatus::Failed => TextStyle::Warning,
        RowStatus::Pending | RowStatus::InFlight => TextStyle::Plain,
    }
}

/// The row with this id; a failure that names it if there is none.
pub(super) async fn find_row(operations: &OutboxOperations, id: RowId) -> Result<RowView, Failure> {
    operations.row(id).await.map_err(|error| Failure::querying(error, format!("row {id}")))
}

pub(super) fn print_row(row: &RowView, format: OutputFormat) -> Result<(), Failure> {
    let one = std::slice::from_ref(row);
    print_line(&if format.is_json() {
        row_document(row).to_string()
    } else {
        rows_table(one, TerminalFeatures::of_stdout())
    })
}

pub(super) async fn partitions(operations: &OutboxOperations, format: OutputFormat) -> Result<(), Failure> {
    let views = operations.partitions().await?;
    if format.is_json() {
        return views.into_iter().try_for_each(|view| print_line(&partition_document(view).to_string()));
    }
    print_line(&partitions_table(&views, TerminalFeatures::of_stdout()))
}

fn partitions_table(views: &[PartitionView], terminal: TerminalFeatures) -> String {
    let cells = |view: &PartitionView| -> Vec<TableCell> {
        let no_owner = || TableCell::styled("-", TextStyle::Error);
        table_row![
            view.partition,
            view.owner.as_ref().map_or_else(no_owner, TableCell::from),
            view.epoch,
            view.counter,
            view.open_batch.map(|token| token.to_string()).unwrap_or_default(),
            view.expires_at.map(rfc3339).unwrap_or_default(),
            view.depth,
        ]
    };
    table(&PARTITION_COLUMNS, &views.iter().map(cells).collect::<Vec<_>>(), terminal)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{KEY, parked_row};
    use super::*;

    #[test]
    fn a_row_is_a_line_with_its_attempts_and_its_last_failure() {
        let text = rows_table(&[parked_row()], TerminalFeatures::PIPE);

        let expected = format!(
            "ID  STATUS  TYPE           KEY{}  PARTITION  ATTEMPTS  NEXT ATTEMPT AT  LAST FAILURE REASON\n \
              6  PARKED  ORDER_CREATED  {KEY}          7        12                   connection refused",
            " ".repeat(33)
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn eighty_columns_show_key_status_and_reason() {
        let text = rows_table(&[parked_row()], TerminalFeatures { width: Some(80), colour: false });

        let header = format!("ID  STATUS  KEY{}  LAST FAILURE REASON", " ".repeat(33));
        assert_eq!(text.lines().next(), Some(header.as_str()));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn an_empty_list_says_what_there_is_none_of() {
        let all = RowFilter::default();
        let parked = RowFilter { status: Some(RowStatus::Parked), ..all.clone() };
        let of_type = RowFilter { event_type: Some("ORDER_CREATED".into()), ..all.clone() };
        let cases = [
            (all, "the outbox has no rows"),
            (parked.clone(), "no rows are PARKED"),
            (RowFilter { after: Some(3), ..parked }, "no rows that match are PARKED"),
            (of_type, "no rows match"),
        ];
        for (filter, expected) in cases {
            assert_eq!(none_match(&filter), expected);
        }
    }
}
