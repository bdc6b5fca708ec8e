//! Decoding the rows that a claim returns.
use std::sync::Arc;

use domain::{Hlc, RegionId};
use ports::orders::TraceContext;
use ports::outbox::ClaimedRow;
use tokio_postgres::Row;

use crate::connection::sql_value::{event_id, get, get_time_opt, order_id};
use crate::connection::statement_error::StatementResult;

/// Decodes all rows, in id order.
pub(crate) fn read_all(rows: &[Row]) -> StatementResult<Vec<ClaimedRow>> {
    let mut claimed: Vec<ClaimedRow> = Vec::with_capacity(rows.len());
    for row in rows {
        if get::<Option<i64>>(row, 7)?.is_some() {
            let decoded = read(row, claimed.last())?;
            claimed.push(decoded);
        }
    }
    // The server returns them page by page, nearly sorted. Sorting there would copy the payloads.
    claimed.sort_by_key(|row| row.id);
    Ok(claimed)
}

/// Decodes one row. The event's columns are NULL if the event was deleted.
fn read(row: &Row, previous: Option<&ClaimedRow>) -> StatementResult<ClaimedRow> {
    let shared = |column: usize, previous: Option<&Arc<str>>| -> StatementResult<Arc<str>> {
        // Neighbouring rows mostly have the same type and topic, and share one allocation.
        let text = get::<Option<&str>>(row, column)?.unwrap_or("");
        Ok(previous.filter(|previous| &***previous == text).cloned().unwrap_or_else(|| text.into()))
    };
    let region = get::<Option<&str>>(row, 15)?.unwrap_or("");
    let same_region = previous.map(|previous| &previous.region).filter(|previous| previous.as_str() == region).cloned();
    let parent = get::<Option<&str>>(row, 18)?;
    let state = get::<Option<&str>>(row, 19)?;
    Ok(ClaimedRow {
        id: get(row, 7)?,
        event_id: event_id(get::<Option<_>>(row, 10)?.unwrap_or_default()),
        key: order_id(get(row, 8)?),
        kind: shared(11, previous.map(|previous| &previous.kind))?,
        topic: shared(12, previous.map(|previous| &previous.topic))?,
        payload: get::<Option<&[u8]>>(row, 21)?.map(Arc::from),
        sequence: get::<Option<i64>>(row, 13)?.unwrap_or_default() as u64,
        occurred_at: get_time_opt(row, 14)?.unwrap_or_default(),
        region: same_region.unwrap_or_else(|| RegionId::new(region)),
        hlc: Hlc {
            millis: get::<Option<_>>(row, 16)?.unwrap_or_default(),
            counter: get::<Option<i64>>(row, 17)?.unwrap_or_default() as u32,
        },
        trace: parent.map(|parent| TraceContext { parent: parent.into(), state: state.map(Arc::from) }),
        attempt: get::<i32>(row, 9)?.unsigned_abs(),
        created_at: get_time_opt(row, 20)?.unwrap_or_default(),
    })
}
