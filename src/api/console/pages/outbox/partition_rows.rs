//! The rows of one partition, found among a bounded number of rows: stores list rows by id, and only a worker reads them by partition.
use app::error::QueryError;
use app::operators::outbox::{OutboxOperations, ROWS_MAX, RowPage};
use app::port_types::{PartitionNo, RowFilter, RowStatus};

use crate::console::links::link;

/// Most rows that are read for a page.
pub(super) const SEARCHED_MAX: usize = 2_000;

/// The waiting rows of a partition.
pub(super) fn partition_link(partition: PartitionNo) -> String {
    link("/console/outbox", &[("status", RowStatus::Pending.as_str()), ("partition", &partition.0.to_string())])
}

/// A page of a partition's rows. It may be short or empty although it has a next one, which continues behind the searched rows.
pub(super) async fn partition_rows(
    operations: &OutboxOperations,
    filter: &RowFilter,
    partition: PartitionNo,
    limit: usize,
) -> Result<RowPage, QueryError> {
    let mut filter = filter.clone();
    let (mut rows, mut searched) = (Vec::new(), 0);
    loop {
        let page = operations.rows(&filter, ROWS_MAX).await?;
        searched += page.rows.len();
        for row in page.rows {
            let id = row.id;
            if row.partition != partition {
                continue;
            }
            rows.push(row);
            if rows.len() == limit {
                return Ok(RowPage { rows, next: Some(id) });
            }
        }
        match page.next {
            Some(next) if searched < SEARCHED_MAX => filter.after = Some(next),
            next => return Ok(RowPage { rows, next }),
        }
    }
}
