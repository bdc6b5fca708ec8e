//! The audit table: an entry for each row that an operator changed.
use domain::Timestamp;
use outbox::OperatorAction;
use ports::operators::{Audit, AuditEntry, AuditFilter};
use ports::outbox::RowId;
use rusqlite::{Connection, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;

/// Writes the entry of one row.
pub(crate) fn write(context: &WriteContext<'_>, action: OperatorAction, id: RowId, audit: &Audit) -> CommandResult<()> {
    let mut insert = context.sql.prepare_cached(
        "INSERT INTO outbox_audit (acted_at, action, row_id, operator, reason) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    insert.execute(params![context.now.millis(), action.as_str(), id, audit.operator, audit.reason])?;
    Ok(())
}

/// At most `limit` entries, newest first. Without an index on the row: the table has only what operators did, and is read from its end.
pub(crate) fn entries(sql: &Connection, filter: &AuditFilter, limit: u32) -> CommandResult<Vec<AuditEntry>> {
    let mut select = sql.prepare_cached(
        "SELECT id, acted_at, action, row_id, operator, reason FROM outbox_audit
         WHERE (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR row_id = ?2) AND (?3 IS NULL OR action = ?3) AND (?4 IS NULL OR operator = ?4)
         ORDER BY id DESC LIMIT ?5",
    )?;
    let AuditFilter { row, action, operator, after } = filter;
    let entries =
        select.query_map(params![after, row, action.map(OperatorAction::as_str), operator, limit], |row| {
            Ok(AuditEntry {
                id: row.get(0)?,
                at: Timestamp::from_millis(row.get(1)?),
                action: row.get(2)?,
                row: row.get(3)?,
                audit: Audit { operator: row.get(4)?, reason: row.get(5)? },
            })
        })?;
    Ok(entries.collect::<Result<_, _>>()?)
}
