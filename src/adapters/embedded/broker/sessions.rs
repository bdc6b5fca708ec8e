//! Producer sessions: a slot has at most one open session. The file stores the last number, so no id is used twice.
use ports::partitions::ProducerSessionId;
use rusqlite::params;

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;

/// Opens the next session of a slot and thereby fences the former one.
pub(crate) fn open(context: &WriteContext<'_>, base: &str) -> CommandResult<ProducerSessionId> {
    let mut next = context.sql.prepare_cached(
        "INSERT INTO producer_session (base, session, id) VALUES (?1, 1, ?1 || '.1')
         ON CONFLICT (base) DO UPDATE SET session = session + 1, id = base || '.' || (session + 1) RETURNING id",
    )?;
    Ok(ProducerSessionId(next.query_row([base], |row| row.get::<_, String>(0))?.into()))
}

/// Whether a session is the open one of its slot.
pub(crate) fn is_open(context: &WriteContext<'_>, session: &ProducerSessionId) -> CommandResult<bool> {
    let mut statement = context.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM producer_session WHERE id = ?1)")?;
    Ok(statement.query_row([&*session.0], |row| row.get(0))?)
}

/// Fences a session. Idempotent.
pub(crate) fn fence(context: &WriteContext<'_>, session: &ProducerSessionId) -> CommandResult<()> {
    context.sql.prepare_cached("UPDATE producer_session SET id = NULL WHERE id = ?1")?.execute(params![&*session.0])?;
    Ok(())
}

/// Fences the open sessions of all slots. Idempotent.
pub(crate) fn fence_all(context: &WriteContext<'_>) -> CommandResult<()> {
    context.sql.prepare_cached("UPDATE producer_session SET id = NULL")?.execute([])?;
    Ok(())
}
