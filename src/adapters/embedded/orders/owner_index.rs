//! The index of orders by owner. New orders go to a short list first and are added to the index many at a time: an index on the orders
//! themselves would write a page for each owner and commit.
use rusqlite::Connection;

/// Length of the list at which its orders are added to the index. A query for an owner's orders reads the whole list, which takes a third
/// of a millisecond at this length; adding them takes some milliseconds of the writer.
pub(crate) const UNINDEXED_MAX: u32 = 2_048;

/// Ids of the orders of owner ?1, from the index and from the list; part of a larger query.
pub(crate) const OWNER_ORDER_IDS: &str =
    "SELECT id FROM order_owner WHERE owner = ?1 UNION ALL SELECT id FROM order_fresh WHERE owner = ?1";

/// Number of orders in the list.
pub(crate) fn unindexed_count(sql: &Connection) -> rusqlite::Result<u32> {
    sql.query_row("SELECT count(*) FROM order_fresh", [], |row| row.get(0))
}

/// Adds the list to the index and empties it, inside a transaction.
pub(crate) fn add_unindexed(sql: &Connection) -> rusqlite::Result<()> {
    // In index order, so that each page is written once.
    sql.prepare_cached("INSERT INTO order_owner SELECT owner, id FROM order_fresh ORDER BY owner, id")?.execute([])?;
    sql.prepare_cached("DELETE FROM order_fresh")?.execute([])?;
    Ok(())
}
