//! Rows of the outbox: the stored text of an event's metadata, and the forms in which the scripts return rows.
use std::sync::Arc;

use domain::{EventId, Hlc, RegionId, Timestamp};
use ports::Error;
use ports::FailureType;
use ports::broker::Position;
use ports::event_headers::EventHeaders;
use ports::operators::RowView;
use ports::orders::{NewRow, RegionStamp, TraceContext};
use ports::outbox::events::ExternalEvent;
use ports::outbox::{ClaimedRow, EventKey, PoisonRow, RowStatus};
use ports::partitions::{InstanceId, PartitionNo};

use crate::store::reply::{Reply, broken};

/// Topic, sequence, occurred at, region, stamp (millis, counter), trace (parent, state).
type EventMetadata = (String, u64, i64, String, i64, u32, Option<String>, Option<String>);

/// The stored text of an event's metadata: everything except its payload.
pub(crate) fn event_metadata(row: &NewRow) -> Result<String, Error> {
    let (trace, stamp) = (row.trace.as_ref(), row.stamp.as_ref());
    let metadata: EventMetadata = (
        row.topic.to_string(),
        row.sequence,
        row.occurred_at.millis(),
        stamp.map_or(String::new(), |stamp| stamp.region.as_str().to_owned()),
        stamp.map_or(0, |stamp| stamp.hlc.millis),
        stamp.map_or(0, |stamp| stamp.hlc.counter),
        trace.map(|trace| trace.parent.to_string()),
        trace.and_then(|trace| trace.state.as_ref()).map(ToString::to_string),
    );
    serde_json::to_string(&metadata).map_err(|error| Error::Rejected(format!("event {}: {error}", row.event_id)))
}

/// Headers as a JSON object, content type, request id. A field of its own, because earlier versions refuse longer metadata.
type ExtraMetadata = (Option<String>, Option<String>, Option<String>);

/// The stored text of the metadata that only some events have; empty for other events.
pub(crate) fn extra_metadata(
    event: EventId,
    headers: &EventHeaders,
    content_type: &Option<Arc<str>>,
    request_id: &Option<Arc<str>>,
) -> Result<String, Error> {
    let text = |value: &Option<Arc<str>>| value.as_ref().map(ToString::to_string);
    let extra: ExtraMetadata = (headers.to_json(), text(content_type), text(request_id));
    if extra == (None, None, None) {
        return Ok(String::new());
    }
    serde_json::to_string(&extra).map_err(|error| Error::Rejected(format!("event {event}: {error}")))
}

/// The parts of an event's metadata before and after the sequence and the time, which the script assigns: the topic, and the rest.
pub(crate) fn external_metadata(event: &ExternalEvent) -> Result<(String, String), Error> {
    let trace = event.trace.as_ref();
    let text = |value: &Arc<str>| value.to_string();
    let rest =
        ("", 0, 0, trace.map(|trace| text(&trace.parent)), trace.and_then(|trace| trace.state.as_ref()).map(text));
    let json = serde_json::to_string(&*event.topic).and_then(|topic| Ok((topic, serde_json::to_string(&rest)?)));
    let (topic, rest) = json.map_err(|error| Error::Rejected(format!("event {}: {error}", event.event_id)))?;
    // Without the opening bracket of the list.
    Ok((topic, rest[1..].to_owned()))
}

fn stored_extra(text: Option<String>) -> Result<ExtraMetadata, Error> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(ExtraMetadata::default()) };
    serde_json::from_str(&text).map_err(|error| broken(format!("an event's headers: {error}")))
}

/// A row as the claim script returns it.
pub(crate) fn claimed_row(mut row: Reply) -> Result<ClaimedRow, Error> {
    let metadata = row.text(3)?;
    let (topic, sequence, occurred_at, region, millis, counter, parent, state): EventMetadata =
        serde_json::from_str(&metadata).map_err(|error| broken(format!("an event's metadata: {error}")))?;
    let (headers, content_type, request_id) = stored_extra(row.optional_text(7)?)?;
    let trace = |parent: String| TraceContext { parent: parent.into(), state: state.map(Arc::from) };
    Ok(ClaimedRow {
        id: row.number(8)?,
        event_id: event_id(&row.text(0)?)?,
        key: EventKey::from_text(&row.text(1)?),
        event_type: row.text(2)?.into(),
        topic: topic.into(),
        payload: row.bytes(4)?.map(Arc::from),
        sequence,
        occurred_at: Timestamp::from_millis(occurred_at),
        stamp: (!region.is_empty())
            .then(|| RegionStamp { region: RegionId::new(&region), hlc: Hlc { millis, counter } }),
        trace: parent.map(trace),
        request_id: request_id.map(Arc::from),
        headers: headers.as_deref().map(EventHeaders::from_json).unwrap_or_default(),
        content_type: content_type.map(Arc::from),
        // The form of the stored metadata is fixed, so that instances of earlier versions read it.
        contract_checksum: None,
        attempt: row.number(5)?,
        created_at: row.time(6)?.ok_or_else(|| broken("a row without a time"))?,
    })
}

/// The topic of an event by its stored metadata.
pub(crate) fn event_topic(metadata: &str) -> Result<String, Error> {
    let metadata: EventMetadata =
        serde_json::from_str(metadata).map_err(|error| broken(format!("an event's metadata: {error}")))?;
    Ok(metadata.0)
}

/// A row that the resolve script has parked.
pub(crate) fn poison_row(mut row: Reply) -> Result<PoisonRow, Error> {
    let (_, _, request_id) = stored_extra(row.optional_text(6)?)?;
    Ok(PoisonRow {
        id: row.number(0)?,
        event_id: event_id(&row.text(1)?)?,
        key: EventKey::from_text(&row.text(2)?),
        event_type: row.text(3)?.into(),
        request_id: request_id.map(Arc::from),
        attempts: row.number(4)?,
        reason: row.text(5)?,
    })
}

/// A row as operators read it, and the details that only a diagnosis contains.
pub(crate) struct StoredRow {
    pub(crate) view: RowView,
    pub(crate) deaths: u32,
    pub(crate) by_fallback: bool,
    pub(crate) position: Option<Position>,
}

/// A row as the scripts of operators return it.
pub(crate) fn stored_row(mut row: Reply) -> Result<StoredRow, Error> {
    let status = row.text(4)?;
    let view = RowView {
        id: row.number(19)?,
        event_id: event_id(&row.text(0)?)?,
        key: EventKey::from_text(&row.text(1)?),
        event_type: row.text(2)?,
        partition: PartitionNo(row.number(3)?),
        status: RowStatus::parse(&status).ok_or_else(|| broken(format!("a row's status is {status:?}")))?,
        lease_owner: row.optional_text(5)?.map(|owner| InstanceId(owner.into())),
        lease_version: row.number(6)?,
        retry_count: row.number(7)?,
        next_attempt_at: row.time(8)?,
        failure_type: row.optional_text(9)?.as_deref().and_then(FailureType::parse),
        last_failure_reason: row.optional_text(10)?,
        created_at: row.time(11)?.ok_or_else(|| broken("a row without a time"))?,
        sent_at: row.time(12)?,
        last_attempt_at: row.time(18)?,
    };
    let (deaths, by_fallback) = (row.number(13)?, row.flag(14)?);
    let position = row.optional_number(15)?.zip(row.optional_number(16)?).zip(row.optional_text(17)?);
    let position = position.map(|((partition, offset), topic): ((u32, u64), String)| Position {
        topic: topic.into(),
        partition,
        offset,
    });
    Ok(StoredRow { view, deaths, by_fallback, position })
}

fn event_id(text: &str) -> Result<EventId, Error> {
    EventId::parse(text).ok_or_else(|| broken(format!("{text:?} is not an event id")))
}
