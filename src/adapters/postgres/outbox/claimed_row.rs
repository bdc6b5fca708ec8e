//! Decoding the rows that a claim returns.
use std::sync::Arc;

use domain::{Hlc, RegionId};
use ports::orders::TraceContext;
use ports::outbox::ClaimedRow;
use tokio_postgres::Row;

use crate::connection::sql_value::{event_id, get, get_time_opt, order_id};
use crate::connection::statement_error::StatementResult;

/// The columns of an event `e`, after the id, the key and the attempts of its row.
macro_rules! event_columns {
    () => {
        "e.event_id, e.type, e.topic, e.sequence, e.occurred_at, e.region, e.hlc_millis, e.hlc_counter, e.traceparent, e.tracestate,
           e.created_at, e.payload"
    };
}
pub(crate) use event_columns;

/// Decodes rows, in id order. `first` is the column of the row's id; rows in which it is NULL are skipped.
pub(crate) fn read_all<'a>(rows: impl IntoIterator<Item = &'a Row>, first: usize) -> StatementResult<Vec<ClaimedRow>> {
    let mut claimed: Vec<ClaimedRow> = Vec::new();
    for row in rows {
        if get::<Option<i64>>(row, first)?.is_some() {
            let decoded = read(row, first, claimed.last())?;
            claimed.push(decoded);
        }
    }
    // The server returns them page by page, nearly sorted. Sorting there would copy the payloads.
    claimed.sort_by_key(|row| row.id);
    Ok(claimed)
}

/// Decodes one row. The event's columns are NULL if the event was deleted.
fn read(row: &Row, first: usize, previous: Option<&ClaimedRow>) -> StatementResult<ClaimedRow> {
    let shared = |column: usize, previous: Option<&Arc<str>>| -> StatementResult<Arc<str>> {
        // Neighbouring rows mostly have the same type and topic, and share one allocation.
        let text = get::<Option<&str>>(row, column)?.unwrap_or("");
        Ok(previous.filter(|previous| &***previous == text).cloned().unwrap_or_else(|| text.into()))
    };
    let region = get::<Option<&str>>(row, first + 8)?.unwrap_or("");
    let same_region = previous.map(|previous| &previous.region).filter(|previous| previous.as_str() == region).cloned();
    let parent = get::<Option<&str>>(row, first + 11)?;
    let state = get::<Option<&str>>(row, first + 12)?;
    Ok(ClaimedRow {
        id: get(row, first)?,
        event_id: event_id(get::<Option<_>>(row, first + 3)?.unwrap_or_default()),
        key: order_id(get(row, first + 1)?),
        kind: shared(first + 4, previous.map(|previous| &previous.kind))?,
        topic: shared(first + 5, previous.map(|previous| &previous.topic))?,
        payload: get::<Option<&[u8]>>(row, first + 14)?.map(Arc::from),
        sequence: get::<Option<i64>>(row, first + 6)?.unwrap_or_default() as u64,
        occurred_at: get_time_opt(row, first + 7)?.unwrap_or_default(),
        region: same_region.unwrap_or_else(|| RegionId::new(region)),
        hlc: Hlc {
            millis: get::<Option<_>>(row, first + 9)?.unwrap_or_default(),
            counter: get::<Option<i64>>(row, first + 10)?.unwrap_or_default() as u32,
        },
        trace: parent.map(|parent| TraceContext { parent: parent.into(), state: state.map(Arc::from) }),
        attempt: get::<i32>(row, first + 2)?.unsigned_abs(),
        created_at: get_time_opt(row, first + 13)?.unwrap_or_default(),
    })
}
