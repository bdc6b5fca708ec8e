//! The audit table: an entry for each row that an operator changed.
use outbox::{OperatorAction, RowId};
use ports::operators::{Audit, AuditEntry, AuditFilter};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::session::{PooledSession, Transaction};
use crate::connection::sql_value::{SqlValue, get, get_time};
use crate::connection::statement_error::StatementResult;
use crate::connection::where_clause::Conditions;

/// Writes an entry for each row, in the transaction that changes them.
pub(crate) async fn write(
    transaction: &Transaction,
    action: OperatorAction,
    rows: &[RowId],
    audit: &Audit,
) -> StatementResult<()> {
    let (action, rows) = (action.as_str(), rows.to_vec());
    let values: [SqlValue<'_>; 4] =
        [(&action, Type::TEXT), (&rows, Type::INT8_ARRAY), (&audit.operator, Type::TEXT), (&audit.reason, Type::TEXT)];
    let text = "INSERT INTO outbox_audit (action, row_id, operator, reason) SELECT $1, r, $3, $4 FROM unnest($2) AS r";
    transaction.query(text, &values).await.map(|_| ())
}

/// At most `limit` entries, newest first. Without an index on the row: the table has only what operators did, and is read from its end.
pub(crate) async fn entries(
    session: &PooledSession,
    filter: &AuditFilter,
    limit: u32,
) -> StatementResult<Vec<AuditEntry>> {
    let mut conditions = Conditions::default();
    if let Some(after) = filter.after {
        conditions.and("id <", after, Type::INT8);
    }
    if let Some(row) = filter.row {
        conditions.and("row_id =", row, Type::INT8);
    }
    if let Some(action) = filter.action {
        conditions.and("action =", action.as_str(), Type::TEXT);
    }
    if let Some(operator) = &filter.operator {
        conditions.and("operator =", operator.clone(), Type::TEXT);
    }
    let limit = conditions.add_parameter(i64::from(limit), Type::INT8);
    let text = format!(
        "SELECT id, acted_at, action, row_id, operator, reason FROM outbox_audit{} ORDER BY id DESC LIMIT {limit}",
        conditions.text()
    );
    session.query(&text, &conditions.values()).await?.iter().map(read).collect()
}

fn read(row: &Row) -> StatementResult<AuditEntry> {
    Ok(AuditEntry {
        id: get(row, 0)?,
        at: get_time(row, 1)?,
        action: get(row, 2)?,
        row: get(row, 3)?,
        audit: Audit { operator: get(row, 4)?, reason: get(row, 5)? },
    })
}
