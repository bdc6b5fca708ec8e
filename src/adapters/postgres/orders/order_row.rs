//! Encoding and decoding an order's row.
use std::borrow::Cow;

use domain::{Hlc, Item, Items, Money, Order, RegionId, Status, Subject};
use ports::Error;
use tokio_postgres::Row;

use crate::connection::sql_value::{get, get_time, order_id};
use crate::connection::statement_error::{StatementError, StatementResult, broken};

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

/// Encodes the items of an order as JSON: an array of name, quantity and price.
pub(crate) fn items_json(items: &Items) -> StatementResult<String> {
    let encoded: Vec<(&str, u32, String)> =
        items.as_slice().iter().map(|item| (item.name(), item.quantity(), item.price().to_string())).collect();
    serde_json::to_string(&encoded).map_err(|error| StatementError::Port(Error::Rejected(error.to_string())))
}

fn parse_items(json: &str) -> Result<Items, String> {
    let encoded: Vec<(Cow<'_, str>, u32, &str)> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let item = |(name, quantity, price): (Cow<'_, str>, u32, &str)| {
        let price = Money::parse(price).map_err(|error| error.to_string())?;
        Item::new(&name, quantity, price).map_err(|error| error.to_string())
    };
    let items = encoded.into_iter().map(item).collect::<Result<Vec<_>, String>>()?;
    Items::new(items).map_err(|error| error.to_string())
}
