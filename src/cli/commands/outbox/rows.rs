//! Prints rows and partitions.
use api::{partition_document, row_document};
use app::contract::rfc3339;
use app::operators::outbox::Operations;
use app::port_types::{RowFilter, RowId, RowView};

use super::super::super::failure::Failure;
use super::super::super::output::print_line;

pub(super) async fn list(
    operations: &Operations,
    mut filter: RowFilter,
    limit: u32,
    json: bool,
) -> Result<(), Failure> {
    let mut left = limit;
    while left > 0 {
        let page = operations.rows(&filter, left).await?;
        for row in &page.rows {
            print_row(row, json)?;
        }
        left = left.saturating_sub(page.rows.len() as u32);
        let Some(next) = page.next else { break };
        if left == 0 {
            eprintln!("more: --after {next}");
        }
        filter.after = Some(next);
    }
    Ok(())
}

/// The row with this id; a failure that names it if there is none.
pub(super) async fn find_row(operations: &Operations, id: RowId) -> Result<RowView, Failure> {
    operations.row(id).await.map_err(|error| Failure::querying(error, format!("row {id}")))
}

pub(super) fn print_row(row: &RowView, json: bool) -> Result<(), Failure> {
    if json {
        return print_line(&row_document(row).to_string());
    }
    let last = row.last_attempt_at.map(|at| format!(", last {}", rfc3339(at))).unwrap_or_default();
    let due = row.next_attempt_at.map(|at| format!(", due {}", rfc3339(at))).unwrap_or_default();
    let reason = row.last_failure_reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    print_line(&format!(
        "{:>8} {:<9} {} {} partition {} attempts {}{last}{due}{reason}",
        row.id,
        row.status.as_str(),
        row.kind,
        row.key,
        row.partition,
        row.retry_count
    ))
}

pub(super) async fn partitions(operations: &Operations, json: bool) -> Result<(), Failure> {
    for view in operations.partitions().await? {
        if json {
            print_line(&partition_document(view).to_string())?;
        } else {
            let owner = view.owner.as_ref().map_or("unowned".to_owned(), ToString::to_string);
            print_line(&format!(
                "{:>4} {owner} epoch {} counter {} depth {}",
                view.partition, view.epoch, view.counter, view.depth
            ))?;
        }
    }
    Ok(())
}
