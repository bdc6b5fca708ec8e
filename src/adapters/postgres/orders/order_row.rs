//! Encoding and decoding an order's row.
use domain::{Hlc, Order, RegionId, Status, Subject};
use ports::orders::parse_items;
use tokio_postgres::Row;

use crate::connection::sql_value::{get, get_time, order_id};
use crate::connection::statement_error::{StatementResult, broken};

/// The columns that [`read`] decodes, in this order.
pub(crate) const COLUMNS: &str =
    "id, owner, status, version, created_at, updated_at, items::text, region, hlc_millis, hlc_counter";

/// Decodes an order from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row) -> StatementResult<Order> {
    let id = order_id(get(row, 0)?);
    let status: &str = get(row, 2)?;
    Ok(Order {
        id,
        owner: Subject::new(get(row, 1)?).ok_or_else(|| broken(format!("order {id}: its owner is empty")))?,
        status: Status::parse(status).ok_or_else(|| broken(format!("order {id}: unknown status {status}")))?,
        version: get::<i64>(row, 3)? as u64,
        created_at: get_time(row, 4)?,
        updated_at: get_time(row, 5)?,
        items: parse_items(get(row, 6)?).map_err(|reason| broken(format!("order {id}: {reason}")))?,
        region: RegionId::new(get(row, 7)?),
        hlc: Hlc { millis: get(row, 8)?, counter: get::<i64>(row, 9)? as u32 },
    })
}

/// The size of the items' text in bytes, from a row of [`COLUMNS`].
pub(crate) fn items_size(row: &Row) -> StatementResult<usize> {
    Ok(get::<&str>(row, 6)?.len())
}
