//! An order as a row, and back.
use domain::{Hlc, Item, Items, Money, Order, RegionId, Status, Subject};
use ports::Error;
use tokio_postgres::Row;

use crate::error::{Answer, Trouble, broken};
use crate::value::{get, get_time, order_id};

/// The columns that [`read`] expects, in its order.
pub(crate) const COLUMNS: &str =
    "id, owner, status, version, created_at, updated_at, items::text, region, hlc_millis, hlc_counter";

/// Reads an order from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row) -> Answer<Order> {
    let id = order_id(get(row, 0)?);
    let status: &str = get(row, 2)?;
    Ok(Order {
        id,
        owner: Subject::new(get(row, 1)?).ok_or_else(|| broken(format!("order {id}: no owner")))?,
        status: Status::parse(status).ok_or_else(|| broken(format!("order {id}: unknown status {status}")))?,
        version: get::<i64>(row, 3)? as u64,
        created_at: get_time(row, 4)?,
        updated_at: get_time(row, 5)?,
        items: items(get(row, 6)?).map_err(|why| broken(format!("order {id}: {why}")))?,
        region: RegionId::new(get(row, 7)?),
        hlc: Hlc { millis: get(row, 8)?, counter: get::<i64>(row, 9)? as u32 },
    })
}

/// The lines of an order as JSON.
pub(crate) fn lines(items: &Items) -> Answer<String> {
    let lines: Vec<(&str, u32, String)> =
        items.as_slice().iter().map(|line| (line.name(), line.quantity(), line.price().to_string())).collect();
    serde_json::to_string(&lines).map_err(|error| Trouble::Said(Error::Rejected(error.to_string())))
}

fn items(text: &str) -> Result<Items, String> {
    let lines: Vec<(std::borrow::Cow<'_, str>, u32, &str)> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let line = |(name, quantity, price): (std::borrow::Cow<'_, str>, u32, &str)| {
        let price = Money::parse(price).map_err(|error| error.to_string())?;
        Item::new(&name, quantity, price).map_err(|error| error.to_string())
    };
    let lines = lines.into_iter().map(line).collect::<Result<Vec<_>, String>>()?;
    Items::new(lines).map_err(|error| error.to_string())
}
