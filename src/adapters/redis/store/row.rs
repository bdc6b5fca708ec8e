//! A row of the outbox: what an event says beside its payload, and how rows come back.
use std::sync::Arc;

use domain::{EventId, Hlc, OrderId, RegionId, Timestamp};
use ports::Error;
use ports::FailureType;
use ports::broker::Position;
use ports::operators::RowView;
use ports::orders::{NewRow, TraceContext};
use ports::outbox::{ClaimedRow, RowStatus};
use ports::partitions::{InstanceId, PartitionNo};

use super::words::{Reply, broken};

/// Topic, sequence, when, region, stamp, trace.
type Entry = (String, u64, i64, String, i64, u32, Option<String>, Option<String>);

/// What an event says beside its payload.
pub(super) fn entry(row: &NewRow) -> Result<String, Error> {
    let trace = row.trace.as_ref();
    let entry: Entry = (
        row.topic.to_string(),
        row.sequence,
        row.occurred_at.millis(),
        row.region.as_str().to_owned(),
        row.hlc.millis,
        row.hlc.counter,
        trace.map(|trace| trace.parent.to_string()),
        trace.and_then(|trace| trace.state.as_ref()).map(ToString::to_string),
    );
    serde_json::to_string(&entry).map_err(|error| Error::Rejected(format!("event {}: {error}", row.event_id)))
}

/// A row as the claim's script answers it.
pub(super) fn claimed(mut row: Reply) -> Result<ClaimedRow, Error> {
    let entry = row.text(3)?;
    let (topic, sequence, occurred_at, region, millis, counter, parent, state): Entry =
        serde_json::from_str(&entry).map_err(|error| broken(format!("an entry: {error}")))?;
    let trace = |parent: String| TraceContext { parent: parent.into(), state: state.map(Arc::from) };
    Ok(ClaimedRow {
        id: row.number(7)?,
        event_id: event_id(&row.text(0)?)?,
        key: order_id(&row.text(1)?)?,
        kind: row.text(2)?.into(),
        topic: topic.into(),
        payload: row.bytes(4)?.map(Arc::from),
        sequence,
        occurred_at: Timestamp::from_millis(occurred_at),
        region: RegionId::new(&region),
        hlc: Hlc { millis, counter },
        trace: parent.map(trace),
        attempt: row.number(5)?,
        created_at: row.time(6)?.ok_or_else(|| broken("a row without a time"))?,
    })
}

/// A row as operators see it, and what only `why` tells.
pub(super) struct Shown {
    pub(super) view: RowView,
    pub(super) deaths: u32,
    pub(super) by_fallback: bool,
    pub(super) sent_to: Option<Position>,
}

/// A row as the scripts of operators answer it.
pub(super) fn shown(mut row: Reply) -> Result<Shown, Error> {
    let status = row.text(4)?;
    let view = RowView {
        id: row.number(18)?,
        event_id: event_id(&row.text(0)?)?,
        key: order_id(&row.text(1)?)?,
        kind: row.text(2)?,
        partition: PartitionNo(row.number(3)?),
        status: RowStatus::parse(&status).ok_or_else(|| broken(format!("a row's status is {status:?}")))?,
        lease_owner: row.maybe(5)?.map(|owner| InstanceId(owner.into())),
        lease_version: row.number(6)?,
        retry_count: row.number(7)?,
        next_attempt_at: row.time(8)?,
        failure_type: row.maybe(9)?.as_deref().and_then(FailureType::parse),
        last_failure_reason: row.maybe(10)?,
        created_at: row.time(11)?.ok_or_else(|| broken("a row without a time"))?,
        sent_at: row.time(12)?,
    };
    let (deaths, by_fallback) = (row.number(13)?, row.flag(14)?);
    let place = row.maybe_number(15)?.zip(row.maybe_number(16)?).zip(row.maybe(17)?);
    let position =
        |((partition, offset), topic): ((u32, u64), String)| Position { topic: topic.into(), partition, offset };
    Ok(Shown { view, deaths, by_fallback, sent_to: place.map(position) })
}

fn event_id(text: &str) -> Result<EventId, Error> {
    EventId::parse(text).ok_or_else(|| broken(format!("{text:?} is no event's id")))
}

fn order_id(text: &str) -> Result<OrderId, Error> {
    OrderId::parse(text).ok_or_else(|| broken(format!("{text:?} is no order's id")))
}
