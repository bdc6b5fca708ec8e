//! Whose orders are which: a short list of new ones, filed by owner in one go when it has grown. An index would write a page for each owner
//! and commit.
use domain::Order;
use rusqlite::{Connection, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;

/// New orders that are listed before they are filed. Whoever asks for an owner's orders reads the whole list, which takes a third of a
/// millisecond at this length; filing takes some milliseconds of the writer.
pub(crate) const FRESH_MAX: u32 = 2_048;

/// Ids of the owner in ?1, filed or not; to be used in a compound query.
pub(crate) const IDS: &str =
    "SELECT id FROM order_owner WHERE owner = ?1 UNION ALL SELECT id FROM order_fresh WHERE owner = ?1";

/// Notes a new order.
pub(crate) fn note(context: &mut WriteContext<'_>, order: &Order) -> CommandResult<()> {
    let mut statement = context.sql.prepare_cached("INSERT INTO order_fresh (owner, id) VALUES (?1, ?2)")?;
    statement.execute(params![order.owner.as_str(), order.id.bytes()])?;
    context.fresh += 1;
    Ok(())
}

/// How long the list is.
pub(crate) fn fresh(sql: &Connection) -> rusqlite::Result<u32> {
    sql.query_row("SELECT count(*) FROM order_fresh", [], |row| row.get(0))
}

/// Files the list, inside a transaction.
pub(crate) fn file(sql: &Connection) -> rusqlite::Result<()> {
    // In order, so that each page is visited once.
    sql.prepare_cached("INSERT INTO order_owner SELECT owner, id FROM order_fresh ORDER BY owner, id")?.execute([])?;
    sql.prepare_cached("DELETE FROM order_fresh")?.execute([])?;
    Ok(())
}
