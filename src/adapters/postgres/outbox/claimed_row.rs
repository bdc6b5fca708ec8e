//! Decoding the rows that a claim returns.
use std::collections::HashMap;
use std::sync::Arc;

use domain::{Hlc, RegionId};
use ports::event_headers::EventHeaders;
use ports::orders::{RegionStamp, TraceContext};
use ports::outbox::{ClaimedRow, RowId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{event_id, event_key, get, get_time_opt};
use crate::connection::statement_error::StatementResult;

/// The columns of an `event` that [`read`] decodes.
macro_rules! event_columns {
    () => {
        "event.event_id, event.type, event.topic, event.sequence, event.occurred_at, event.region, event.hlc_millis, event.hlc_counter,
           event.traceparent, event.tracestate, event.created_at, event.payload, event.key_text, event.headers::text, event.content_type,
           event.request_id, event.contract_checksum"
    };
}
pub(crate) use event_columns;

/// One event by its row's id, whatever the row's status, with the attempts made so far.
const EVENT: &str = concat!(
    "SELECT event.id, event.key, greatest(coalesce(unsent.attempts, sent.attempts, 1), 1), ",
    event_columns!(),
    " FROM outbox_event event LEFT JOIN outbox_unsent unsent ON unsent.partition = event.partition AND unsent.id = event.id
      LEFT JOIN LATERAL outbox_sent(event.partition, event.id) sent ON unsent.id IS NULL WHERE event.id = $1"
);

/// The event of a row, in the form of a claimed one; `None` if it was deleted.
pub(crate) async fn find(session: &PooledSession, id: RowId) -> StatementResult<Option<ClaimedRow>> {
    let rows = session.query(EVENT, &[(&id, Type::INT8)]).await?;
    Ok(read_all(&rows, 0)?.pop())
}

/// Decodes rows, in id order. `first` is the column of the row's id; rows in which it is NULL are skipped.
pub(crate) fn read_all<'a>(rows: impl IntoIterator<Item = &'a Row>, first: usize) -> StatementResult<Vec<ClaimedRow>> {
    let mut claimed: Vec<ClaimedRow> = Vec::new();
    for row in rows {
        if let Some(id) = get::<Option<i64>>(row, first)? {
            let taken = TakenRow { id, key: get(row, first + 1)?, attempt: get(row, first + 2)? };
            let decoded = read(taken, row, first + 3, claimed.last())?;
            claimed.push(decoded);
        }
    }
    // The server returns them page by page, nearly sorted. Sorting there would copy the payloads.
    claimed.sort_by_key(|row| row.id);
    Ok(claimed)
}

/// Decodes a batch, in id order. The summary has its ids, keys and attempts so far as arrays. Each other row is an event, with its id in
/// the column `event` and the columns of the event after it; these are NULL in the summary.
pub(crate) fn read_batch(summary: &Row, rows: &[Row], event: usize) -> StatementResult<Vec<ClaimedRow>> {
    let (ids, keys): (Vec<i64>, Vec<Uuid>) = (get(summary, "ids")?, get(summary, "keys")?);
    let attempts: Vec<i32> = get(summary, "attempts")?;
    let mut events: HashMap<i64, &Row> = HashMap::with_capacity(rows.len());
    for row in rows {
        if let Some(id) = get::<Option<i64>>(row, event)? {
            events.insert(id, row);
        }
    }
    let mut claimed: Vec<ClaimedRow> = Vec::with_capacity(ids.len());
    for ((id, key), attempts) in ids.into_iter().zip(keys).zip(attempts) {
        let taken = TakenRow { id, key, attempt: attempts + 1 };
        let row = events.get(&id).copied().unwrap_or(summary);
        let decoded = read(taken, row, event + 1, claimed.last())?;
        claimed.push(decoded);
    }
    claimed.sort_by_key(|row| row.id);
    Ok(claimed)
}

/// The part of a queued row that a claim returns.
struct TakenRow {
    id: RowId,
    key: Uuid,
    attempt: i32,
}

/// Decodes one row, with its event from the column `first` on. The event's columns are NULL if the event was deleted.
fn read(taken: TakenRow, row: &Row, first: usize, previous: Option<&ClaimedRow>) -> StatementResult<ClaimedRow> {
    let shared = |column: usize, previous: Option<&Arc<str>>| -> StatementResult<Arc<str>> {
        // Neighbouring rows mostly have the same type and topic, and share one allocation.
        let text = get::<Option<&str>>(row, column)?.unwrap_or("");
        Ok(previous.filter(|previous| &***previous == text).cloned().unwrap_or_else(|| text.into()))
    };
    let parent = get::<Option<&str>>(row, first + 8)?;
    let state = get::<Option<&str>>(row, first + 9)?;
    Ok(ClaimedRow {
        id: taken.id,
        event_id: event_id(get::<Option<_>>(row, first)?.unwrap_or_default()),
        key: event_key(taken.key, get(row, first + 12)?),
        event_type: shared(first + 1, previous.map(|previous| &previous.event_type))?,
        topic: shared(first + 2, previous.map(|previous| &previous.topic))?,
        payload: get::<Option<&[u8]>>(row, first + 11)?.map(Arc::from),
        sequence: get::<Option<i64>>(row, first + 3)?.unwrap_or_default() as u64,
        occurred_at: get_time_opt(row, first + 4)?.unwrap_or_default(),
        stamp: stamp(row, first + 5, previous)?,
        trace: parent.map(|parent| TraceContext { parent: parent.into(), state: state.map(Arc::from) }),
        request_id: get::<Option<&str>>(row, first + 15)?.map(Arc::from),
        headers: get::<Option<&str>>(row, first + 13)?.map(EventHeaders::from_json).unwrap_or_default(),
        content_type: get::<Option<&str>>(row, first + 14)?.map(Arc::from),
        contract_checksum: get::<Option<i32>>(row, first + 16)?.map(i32::cast_unsigned),
        attempt: taken.attempt.unsigned_abs(),
        created_at: get_time_opt(row, first + 10)?.unwrap_or_default(),
    })
}

/// The stamp of a change; an event without one has an empty region.
fn stamp(row: &Row, first: usize, previous: Option<&ClaimedRow>) -> StatementResult<Option<RegionStamp>> {
    let region = get::<Option<&str>>(row, first)?.unwrap_or("");
    if region.is_empty() {
        return Ok(None);
    }
    let known = previous.and_then(|previous| previous.stamp.as_ref()).map(|stamp| &stamp.region);
    let region = known.filter(|known| known.as_str() == region).cloned().unwrap_or_else(|| RegionId::new(region));
    let hlc = Hlc {
        millis: get::<Option<_>>(row, first + 1)?.unwrap_or_default(),
        counter: get::<Option<i64>>(row, first + 2)?.unwrap_or_default() as u32,
    };
    Ok(Some(RegionStamp { region, hlc }))
}
