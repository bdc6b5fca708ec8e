//! Claimed rows out of the claim's answer.
use std::sync::Arc;

use domain::{Hlc, RegionId};
use ports::orders::TraceContext;
use ports::outbox::ClaimedRow;
use tokio_postgres::Row;

use crate::error::Answer;
use crate::value::{event_id, get, get_time_opt, order_id};

/// All rows, in id order.
pub(crate) fn read_all(rows: &[Row]) -> Answer<Vec<ClaimedRow>> {
    let mut claimed: Vec<ClaimedRow> = Vec::with_capacity(rows.len());
    for row in rows {
        if get::<Option<i64>>(row, 7)?.is_some() {
            let one = read(row, claimed.last())?;
            claimed.push(one);
        }
    }
    // The server takes them page by page, which is nearly their order: cheaper here than there, where payloads would move.
    claimed.sort_by_key(|row| row.id);
    Ok(claimed)
}

/// One row; columns of the event are missing where the event is gone.
fn read(row: &Row, last: Option<&ClaimedRow>) -> Answer<ClaimedRow> {
    let shared = |column: usize, known: Option<&Arc<str>>| -> Answer<Arc<str>> {
        // Neighbours mostly share type and topic: one allocation for all of them.
        let text = get::<Option<&str>>(row, column)?.unwrap_or("");
        Ok(known.filter(|known| &***known == text).cloned().unwrap_or_else(|| text.into()))
    };
    let region = get::<Option<&str>>(row, 15)?.unwrap_or("");
    let same_region = last.map(|last| &last.region).filter(|last| last.as_str() == region).cloned();
    let parent = get::<Option<&str>>(row, 18)?;
    let state = get::<Option<&str>>(row, 19)?;
    Ok(ClaimedRow {
        id: get(row, 7)?,
        event_id: event_id(get::<Option<_>>(row, 10)?.unwrap_or_default()),
        key: order_id(get(row, 8)?),
        kind: shared(11, last.map(|last| &last.kind))?,
        topic: shared(12, last.map(|last| &last.topic))?,
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
