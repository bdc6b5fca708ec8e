//! The statements of operators on rows: retry, park, redrive. They change only rows that no worker holds, raise the partition's counter,
//! and leave an audit row.
use std::collections::BTreeMap;

use outbox::{OperatorAction, OutboxRow, PartitionNo, RowChange, RowId, RowStatus, operator, status};
use ports::operators::{Audit, OperatorOutcome, RowFilter, redrive_error_after};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::{PooledSession, Transaction};
use crate::connection::sql_value::get;
use crate::connection::statement_error::{StatementError, StatementResult, retry_conflicts};
use crate::leases::lease_row;
use crate::operators::audit_log;
use crate::operators::row_query::{RowQuery, status_from_code};
use crate::outbox::row_changes;
use crate::store::context::StoreContext;

/// Most rows that one transaction of a redrive changes while it holds the lock of their lease.
const REDRIVE_ROWS_MAX: usize = 500;

/// A row in the view `outbox_unsent`.
struct UnsentRow {
    row: OutboxRow<Uuid>,
    status: RowStatus,
    has_failed: bool,
}

/// Makes one row due at once.
pub(crate) async fn retry(context: &StoreContext, id: RowId, audit: &Audit) -> StatementResult<OperatorOutcome> {
    change_one(context, OperatorAction::Retry, id, audit, |unsent| operator::due_now(&unsent.row, unsent.status)).await
}

/// Makes one parked row due at once.
pub(crate) async fn redrive_row(context: &StoreContext, id: RowId, audit: &Audit) -> StatementResult<OperatorOutcome> {
    change_one(context, OperatorAction::Redrive, id, audit, |unsent| operator::due_now(&unsent.row, unsent.status))
        .await
}

/// Parks one row; later rows of its key wait behind it.
pub(crate) async fn park(context: &StoreContext, id: RowId, audit: &Audit) -> StatementResult<OperatorOutcome> {
    let parked = |unsent: &UnsentRow| operator::parked(&unsent.row, unsent.has_failed, &audit.operator, &audit.reason);
    change_one(context, OperatorAction::Park, id, audit, parked).await
}

async fn change_one(
    context: &StoreContext,
    action: OperatorAction,
    id: RowId,
    audit: &Audit,
    change: impl Fn(&UnsentRow) -> RowChange<Uuid>,
) -> StatementResult<OperatorOutcome> {
    let session = context.service_session().await?;
    let Some(partition) = find_partition(&session, id).await? else { return sent_or_missing(&session, id).await };
    // The lease is locked first, so that the row does not change after it is read.
    let (transaction, _) = lease_row::lock(session, partition).await?;
    let Some(unsent) = read_unsent(&transaction, partition, &[id]).await?.pop() else {
        transaction.rollback().await?;
        return sent_or_missing(&context.service_session().await?, id).await;
    };
    if !action.applies_to(unsent.status) {
        transaction.rollback().await?;
        return Ok(OperatorOutcome::WrongStatus(unsent.status));
    }
    row_changes::apply(&transaction, partition, &[change(&unsent)]).await?;
    lease_row::increment_counter(&transaction, partition).await?;
    audit_log::write(&transaction, action, &[id], audit).await?;
    transaction.commit().await?;
    Ok(OperatorOutcome::Done(1))
}

/// Makes the first `limit` parked rows that match a filter due at once. Each transaction locks one lease, so that rounds and heartbeats continue
/// meanwhile.
///
/// # Errors
/// [`ports::Error::Unknown`] after earlier transactions have changed rows.
pub(crate) async fn redrive(
    context: &StoreContext,
    filter: &RowFilter,
    limit: u32,
    audit: &Audit,
) -> StatementResult<OperatorOutcome> {
    let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
    let found = RowQuery::new(&filter).rows(&context.service_session().await?, limit).await?;
    let mut rows: BTreeMap<PartitionNo, Vec<RowId>> = BTreeMap::new();
    for view in found {
        rows.entry(view.partition).or_default().push(view.id);
    }
    let mut changed = 0;
    for (partition, ids) in &rows {
        for ids in ids.chunks(REDRIVE_ROWS_MAX) {
            let redriven = retry_conflicts!(redrive_rows(context, *partition, ids, audit));
            let error_after = |error: StatementError| redrive_error_after(changed, error.into_port());
            changed += redriven.map_err(error_after)?;
        }
    }
    Ok(OperatorOutcome::Done(changed))
}

/// Makes those of a partition's rows due that are still parked, in one transaction; returns their number.
async fn redrive_rows(
    context: &StoreContext,
    partition: PartitionNo,
    ids: &[RowId],
    audit: &Audit,
) -> StatementResult<u64> {
    let (transaction, _) = lease_row::lock(context.service_session().await?, partition).await?;
    let unsent = read_unsent(&transaction, partition, ids).await?;
    let parked = unsent.iter().filter(|unsent| OperatorAction::Redrive.applies_to(unsent.status));
    let changes: Vec<RowChange<Uuid>> = parked.map(|unsent| operator::due_now(&unsent.row, unsent.status)).collect();
    if changes.is_empty() {
        transaction.rollback().await?;
        return Ok(0);
    }
    row_changes::apply(&transaction, partition, &changes).await?;
    lease_row::increment_counter(&transaction, partition).await?;
    let changed: Vec<RowId> = changes.iter().map(|change| change.id).collect();
    audit_log::write(&transaction, OperatorAction::Redrive, &changed, audit).await?;
    transaction.commit().await?;
    Ok(changed.len() as u64)
}

/// Counts the parked rows that match a filter.
pub(crate) async fn count_parked(context: &StoreContext, filter: &RowFilter) -> StatementResult<OperatorOutcome> {
    let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
    Ok(OperatorOutcome::Done(RowQuery::new(&filter).count(&context.service_session().await?).await?))
}

/// The partition of an unsent row: by its event, or by `outbox_waiting` if the event was deleted.
async fn find_partition(session: &PooledSession, id: RowId) -> StatementResult<Option<PartitionNo>> {
    let text = "SELECT coalesce((SELECT partition FROM outbox_event WHERE id = $1), (SELECT partition FROM outbox_waiting WHERE id = $1))";
    let rows = session.query(text, &[(&id, Type::INT8)]).await?;
    let partition = rows.first().map(|row| get::<Option<i32>>(row, 0)).transpose()?.flatten();
    Ok(partition.map(|partition| PartitionNo(partition.unsigned_abs())))
}

/// Those of a partition's rows that are unsent, in id order.
async fn read_unsent(
    transaction: &Transaction,
    partition: PartitionNo,
    ids: &[RowId],
) -> StatementResult<Vec<UnsentRow>> {
    let text = "SELECT id, key, status, attempts, deaths, trial_deaths, failure_type IS NOT NULL FROM outbox_unsent
                WHERE partition = $1 AND id = ANY ($2) ORDER BY id";
    let rows = transaction.query(text, &[(&(partition.0 as i32), Type::INT4), (&ids, Type::INT8_ARRAY)]).await?;
    rows.iter().map(unsent_row).collect()
}

fn unsent_row(row: &Row) -> StatementResult<UnsentRow> {
    let code: i16 = get(row, 2)?;
    let outbox_row = OutboxRow {
        id: get(row, 0)?,
        key: get(row, 1)?,
        attempts: get::<i32>(row, 3)?.unsigned_abs(),
        deaths: get::<i16>(row, 4)?.unsigned_abs().into(),
        trial_deaths: get::<i16>(row, 5)?.unsigned_abs().into(),
        blocks_key: matches!(code, status::code::FAILED | status::code::PARKED),
    };
    Ok(UnsentRow { row: outbox_row, status: status_from_code(code)?, has_failed: get(row, 6)? })
}

async fn sent_or_missing(session: &PooledSession, id: RowId) -> StatementResult<OperatorOutcome> {
    let text =
        "SELECT EXISTS (SELECT FROM outbox_event e CROSS JOIN LATERAL outbox_sent(e.partition, e.id) WHERE e.id = $1)";
    let rows = session.query(text, &[(&id, Type::INT8)]).await?;
    let sent = rows.first().map(|row| get::<bool>(row, 0)).transpose()?;
    Ok(if sent == Some(true) { OperatorOutcome::WrongStatus(RowStatus::Sent) } else { OperatorOutcome::Missing })
}
