//! Values on their way into statements and out of rows.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::{EventId, OrderId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;

use crate::error::{Answer, broken};

/// A parameter and its type: told with every statement, so that a statement need not be prepared to be understood.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// The last millisecond of the year 9999 and the first of year 1: beyond, people cannot read what tables show.
const YEARS: (i64, i64) = (-62_135_596_800_000, 253_402_300_799_999);

/// A point in time as the client takes it.
pub(crate) fn time(at: Timestamp) -> SystemTime {
    let millis = at.millis().clamp(YEARS.0, YEARS.1);
    let size = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH - size } else { UNIX_EPOCH + size }
}

/// A point in time as the client gives it. Microseconds are cut off.
pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    let millis = match at.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_micros().div_ceil(1_000)).unwrap_or(i64::MAX),
    };
    Timestamp::from_millis(millis)
}

/// A time in a row.
pub(crate) fn get_time(row: &Row, column: usize) -> Answer<Timestamp> {
    get::<SystemTime>(row, column).map(timestamp)
}

/// A time in a row, where there is one.
pub(crate) fn get_time_opt(row: &Row, column: usize) -> Answer<Option<Timestamp>> {
    Ok(get::<Option<SystemTime>>(row, column)?.map(timestamp))
}

/// An order's id as the server's type.
pub(crate) fn order_uuid(id: OrderId) -> Uuid {
    Uuid::from_bytes(id.bytes())
}

/// An event's id as the server's type.
pub(crate) fn event_uuid(id: EventId) -> Uuid {
    Uuid::from_bytes(id.bytes())
}

/// An order's id from the server's type.
pub(crate) fn order_id(id: Uuid) -> OrderId {
    OrderId::from_bytes(*id.as_bytes())
}

/// An event's id from the server's type.
pub(crate) fn event_id(id: Uuid) -> EventId {
    EventId::from_bytes(*id.as_bytes())
}

/// A column of a row; a value of another type than we wrote is a broken table.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Answer<T> {
    row.try_get(column).map_err(|error| broken(crate::error::words(&error)))
}

/// A duration in seconds, as `make_interval` takes it. A thousand years are for ever, and still a date.
pub(crate) fn seconds(duration: Duration) -> f64 {
    const EVER: f64 = 1_000.0 * 365.0 * 86_400.0;
    duration.as_secs_f64().min(EVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_to_the_millisecond_also_before_1970() {
        for millis in [0, 1, -1, 1_767_225_600_123, YEARS.0, YEARS.1] {
            assert_eq!(timestamp(time(Timestamp::from_millis(millis))).millis(), millis);
        }
        assert_eq!(timestamp(time(Timestamp::from_millis(i64::MAX))).millis(), YEARS.1);
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_micros(1)).millis(), -1);
    }
}
