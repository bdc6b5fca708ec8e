//! `audit`: the actions of operators on outbox rows, newest first.
use api::audit_entry_document;
use app::contract::rfc3339;
use app::operators::outbox::OutboxOperations;
use app::port_types::{AuditEntry, AuditFilter, AuditId, OperatorAction, RowId};
use posthaste::Config;

use super::super::failure::Failure;
use super::super::output::format::{OutputArguments, OutputFormat};
use super::super::output::table::{TableCell, TableColumn, table, table_row};
use super::super::output::terminal::TerminalFeatures;
use super::super::output::{print_line, print_message};
use super::super::runtime::block_on;
use super::super::value_parsers::{at_least_one, operator_action, row_id};

const COLUMNS: [TableColumn; 6] = [
    TableColumn::number("ID").drop_priority(2),
    TableColumn::text("AT"),
    TableColumn::text("ACTION"),
    TableColumn::number("ROW"),
    TableColumn::text("BY"),
    TableColumn::wrapped("REASON"),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only actions on this row.
    #[arg(long, value_parser = row_id)]
    row: Option<RowId>,
    /// Only entries of this action.
    #[arg(long, value_parser = operator_action(), ignore_case = true)]
    action: Option<OperatorAction>,
    /// Only actions of the operator with exactly this name.
    #[arg(long, value_name = "OPERATOR")]
    by: Option<String>,
    /// Only entries older than the one with this id.
    #[arg(long, value_name = "ID")]
    after: Option<AuditId>,
    /// Maximum number of entries; stderr names the entry to continue after.
    #[arg(short = 'n', long, default_value_t = 100, value_parser = at_least_one())]
    limit: u32,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) fn audit(config: &Config, arguments: Arguments) -> Result<u8, Failure> {
    block_on(async {
        let operations = posthaste::open_for_operator(config).await?.operations;
        list(&operations, arguments).await?;
        Ok(0)
    })
}

async fn list(operations: &OutboxOperations, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { row, action, by, after, limit, output } = arguments;
    let mut filter = AuditFilter { row, action, operator: by, after };
    let (mut entries, mut next) = (Vec::new(), None);
    while entries.len() < limit as usize {
        let left = limit - entries.len() as u32;
        let page = operations.audit_entries(&filter, left).await?;
        entries.extend(page.entries);
        next = page.next;
        let Some(last) = next else { break };
        filter.after = Some(last);
    }
    print_entries(&entries, output.format(), TerminalFeatures::of_stdout())?;
    if let Some(next) = next {
        print_message(format_args!("more: --after {next}"));
    }
    Ok(())
}

fn print_entries(entries: &[AuditEntry], format: OutputFormat, terminal: TerminalFeatures) -> Result<(), Failure> {
    if entries.is_empty() {
        print_message(format_args!("no operator has changed a row that matches"));
        return Ok(());
    }
    if format.is_json() {
        return entries.iter().try_for_each(|entry| print_line(&audit_entry_document(entry).to_string()));
    }
    print_line(&entries_table(entries, terminal))
}

fn entries_table(entries: &[AuditEntry], terminal: TerminalFeatures) -> String {
    let row = |entry: &AuditEntry| -> Vec<TableCell> {
        let row = entry.row.map_or("-".to_owned(), |row| row.to_string());
        table_row![entry.id, rfc3339(entry.at), &entry.action, row, &entry.audit.operator, &entry.audit.reason]
    };
    table(&COLUMNS, &entries.iter().map(row).collect::<Vec<_>>(), terminal)
}

#[cfg(test)]
mod tests {
    use app::port_types::Audit;
    use domain::Timestamp;

    use super::*;

    #[test]
    fn an_entry_is_a_line_with_operator_and_reason() {
        let entry = AuditEntry {
            id: 3,
            at: Timestamp::from_millis(1_000),
            action: "retry".into(),
            row: Some(6),
            audit: Audit { operator: "olga".into(), reason: "the broker is back".into() },
        };

        let text = entries_table(&[entry], TerminalFeatures::PIPE);

        assert_eq!(
            text,
            "ID  AT                        ACTION  ROW  BY    REASON\n 3  1970-01-01T00:00:01.000Z  retry     6  olga  the broker is back"
        );
    }
}
