//! Conversions between the program's values and those of parameters and columns.
use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::{EventId, OrderId, Timestamp};
use outbox::EventKey;
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;

use crate::connection::statement_error::{StatementResult, broken};

/// A parameter with its type. The type is sent with the statement, so that the server can run it without preparing it first.
pub(crate) type SqlValue<'a> = (&'a (dyn ToSql + Sync), Type);

/// The first millisecond of the year 1 and the last of the year 9999, the bounds that every tool displays.
const YEARS: (i64, i64) = (-62_135_596_800_000, 253_402_300_799_999);

/// A timestamp as a parameter, clamped to the years 1 to 9999.
pub(crate) fn system_time(timestamp: Timestamp) -> SystemTime {
    let millis = timestamp.millis().clamp(YEARS.0, YEARS.1);
    let size = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH - size } else { UNIX_EPOCH + size }
}

/// A timestamp from a column; microseconds are truncated.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let millis = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_micros().div_ceil(1_000)).unwrap_or(i64::MAX),
    };
    Timestamp::from_millis(millis)
}

/// A `timestamptz` column that is not NULL.
pub(crate) fn get_time(row: &Row, column: impl RowIndex + Display) -> StatementResult<Timestamp> {
    get::<SystemTime>(row, column).map(timestamp)
}

/// A `timestamptz` column that may be NULL.
pub(crate) fn get_time_opt(row: &Row, column: usize) -> StatementResult<Option<Timestamp>> {
    Ok(get::<Option<SystemTime>>(row, column)?.map(timestamp))
}

pub(crate) fn order_uuid(id: OrderId) -> Uuid {
    Uuid::from_bytes(id.bytes())
}

/// The column in which the tables of the outbox have the key of an event.
pub(crate) fn key_group(key: &EventKey) -> Uuid {
    Uuid::from_bytes(key.group())
}

/// A key from that column and from `key_text`.
pub(crate) fn event_key(group: Uuid, text: Option<&str>) -> EventKey {
    EventKey::from_stored(*group.as_bytes(), text)
}

pub(crate) fn event_uuid(id: EventId) -> Uuid {
    Uuid::from_bytes(id.bytes())
}

pub(crate) fn order_id(id: Uuid) -> OrderId {
    OrderId::from_bytes(*id.as_bytes())
}

pub(crate) fn event_id(id: Uuid) -> EventId {
    EventId::from_bytes(*id.as_bytes())
}

/// A column of a row, by number or by name. A value of an unexpected type means a damaged table.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: impl RowIndex + Display) -> StatementResult<T> {
    row.try_get(column).map_err(|error| broken(crate::connection::statement_error::describe(&error)))
}

/// A duration in seconds, for `make_interval`; at most a thousand years, so that the result remains a valid timestamp.
pub(crate) fn seconds(duration: Duration) -> f64 {
    const SECONDS_MAX: f64 = 1_000.0 * 365.0 * 86_400.0;
    duration.as_secs_f64().min(SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_keep_their_milliseconds_also_before_1970() {
        for millis in [0, 1, -1, 1_767_225_600_123, YEARS.0, YEARS.1] {
            assert_eq!(timestamp(system_time(Timestamp::from_millis(millis))).millis(), millis);
        }
        assert_eq!(timestamp(system_time(Timestamp::from_millis(i64::MAX))).millis(), YEARS.1);
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_micros(1)).millis(), -1);
    }
}
