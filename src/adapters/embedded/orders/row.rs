//! Conversion of orders to rows and back.
use domain::{Hlc, Order, OrderId, RegionId, Status, Subject, Timestamp};
use ports::orders::{format_items, parse_items};
use rusqlite::{Row, params};

use crate::connection::group_commit::WriteContext;
use crate::error::{CommandResult, broken};

macro_rules! columns {
    () => {
        "id, owner, status, version, created_at, updated_at, items, region, hlc_millis, hlc_counter"
    };
}

/// The columns that [`read`] expects, in its order.
pub(crate) const COLUMNS: &str = columns!();

/// Reads one order by its id.
pub(crate) const FIND: &str = concat!("SELECT ", columns!(), " FROM orders WHERE id = ?1");

/// Writes a new order.
pub(crate) fn insert(context: &WriteContext<'_>, order: &Order) -> CommandResult<bool> {
    let mut statement = context.sql.prepare_cached(
        "INSERT INTO orders (id, owner, status, version, created_at, updated_at, items, total, region, hlc_millis, hlc_counter)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING",
    )?;
    let written = statement.execute(params![
        order.id.bytes(),
        order.owner.as_str(),
        order.status.as_str(),
        order.version as i64,
        order.created_at.millis(),
        order.updated_at.millis(),
        format_items(&order.items)?,
        order.items.total().to_string(),
        order.region.as_str(),
        order.hlc.millis,
        order.hlc.counter,
    ])?;
    Ok(written == 1)
}

/// Updates an order that still has the expected version; returns whether it had. Columns that never change are not written.
pub(crate) fn update(context: &WriteContext<'_>, order: &Order, expected: u64) -> CommandResult<bool> {
    let mut statement = context.sql.prepare_cached(
        "UPDATE orders SET status = ?3, version = ?4, updated_at = ?5, region = ?6, hlc_millis = ?7, hlc_counter = ?8
         WHERE id = ?1 AND version = ?2",
    )?;
    let written = statement.execute(params![
        order.id.bytes(),
        expected as i64,
        order.status.as_str(),
        order.version as i64,
        order.updated_at.millis(),
        order.region.as_str(),
        order.hlc.millis,
        order.hlc.counter,
    ])?;
    Ok(written == 1)
}

/// Reads an order from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row<'_>) -> CommandResult<Order> {
    let id = OrderId::from_bytes(row.get(0)?);
    let status = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    let status = Status::parse(status).ok_or_else(|| broken(format!("order {id}: unknown status {status}")))?;
    let owner = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    let items = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
    Ok(Order {
        id,
        owner: Subject::new(owner).ok_or_else(|| broken(format!("order {id}: no owner")))?,
        status,
        version: row.get::<_, i64>(3)? as u64,
        created_at: Timestamp::from_millis(row.get(4)?),
        updated_at: Timestamp::from_millis(row.get(5)?),
        items: parse_items(items).map_err(|error| broken(format!("order {id}: {error}")))?,
        region: RegionId::new(row.get_ref(7)?.as_str().map_err(rusqlite::Error::from)?),
        hlc: Hlc { millis: row.get(8)?, counter: row.get(9)? },
    })
}

/// The stored size of the items, in bytes, from a row of [`COLUMNS`].
pub(crate) fn items_size(row: &Row<'_>) -> CommandResult<usize> {
    Ok(row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?.len())
}
