//! Settling: an open batch is SENT, its rows move to the archive as one, and keys whose head was among them wait no longer. One statement; it
//! finds nothing to do when it is repeated.
use std::collections::HashSet;

use ports::broker::Position;
use ports::outbox::{FencedOutcome, RowId, Settlement};
use ports::partitions::{Fence, Token};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Answer;
use crate::lease;
use crate::session::Session;
use crate::store::Core;
use crate::value::{Value, get};

/// The archive takes one row for the batch. Its arrays follow `ids`: places come in as they were told, ascending by id, and are put in
/// order only where they are not told of all rows. What nearly no batch has (a second attempt, a failure) is looked at a second time
/// where there is any.
const SETTLE: &str = "WITH l AS MATERIALIZED (SELECT first_id, last_id FROM outbox_lease
       WHERE partition = $1 AND owner = $2 AND epoch = $3 AND in_flight = $4 AND ($5::int8 IS NULL OR counter = $5) FOR UPDATE),
     d AS MATERIALIZED (DELETE FROM outbox o USING l WHERE o.partition = $1 AND o.id BETWEEN l.first_id AND l.last_id AND o.status = 1
         AND o.lease_version = $4 RETURNING o.id, o.key, o.attempts, o.deaths, o.lease_owner, o.failure_type, o.reason),
     w AS (DELETE FROM outbox_waiting w USING d WHERE w.partition = $1 AND w.key = d.key AND w.id = d.id RETURNING 1),
     n AS MATERIALIZED (SELECT count(*) AS sent, array_agg(id) AS ids, min(id) AS first, max(id) AS last, max(lease_owner) AS owner,
         max(attempts) AS attempts, max(deaths) AS deaths, count(failure_type) + count(reason) AS failures
       FROM (SELECT * FROM d ORDER BY id) d),
     p AS MATERIALIZED (SELECT array_agg(p.topic) AS topics, array_agg(p.partition) AS partitions, array_agg(p.place) AS places,
         array_agg(p.by_fallback) AS by_fallback
       FROM (SELECT p.* FROM d LEFT JOIN unnest($6::int8[], $7::text[], $8::int4[], $9::int8[], $10::bool[])
         AS p (id, topic, partition, place, by_fallback) ON p.id = d.id ORDER BY d.id) p),
     a AS (INSERT INTO outbox_archive (partition, token, owner, sent_at, events, first_id, last_id, ids, topic_partitions, topic_offsets,
           topics, by_fallback, attempts, deaths, failure_types, reasons)
         SELECT $1, $4, n.owner, clock_timestamp(), n.sent, n.first, n.last, n.ids,
           CASE WHEN n.ids = $6 THEN $8 ELSE (SELECT partitions FROM p) END, CASE WHEN n.ids = $6 THEN $9 ELSE (SELECT places FROM p) END,
           CASE WHEN NOT $11 THEN NULL WHEN n.ids = $6 THEN $7 ELSE (SELECT topics FROM p) END,
           CASE WHEN NOT $11 THEN NULL WHEN n.ids = $6 THEN $10 ELSE (SELECT by_fallback FROM p) END,
           CASE WHEN n.attempts > 1 THEN ARRAY(SELECT attempts FROM d ORDER BY id) END,
           CASE WHEN n.deaths > 0 THEN ARRAY(SELECT deaths FROM d ORDER BY id) END,
           CASE WHEN n.failures > 0 THEN ARRAY(SELECT failure_type FROM d ORDER BY id) END,
           CASE WHEN n.failures > 0 THEN ARRAY(SELECT reason FROM d ORDER BY id) END
         FROM n WHERE n.sent > 0)
     UPDATE outbox_lease t SET counter = counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, died = false, trial = false,
       first_id = NULL, last_id = NULL, closed = in_flight, archived = archived + n.sent
     FROM l, n WHERE t.partition = $1 RETURNING t.counter, n.sent, (SELECT count(*) FROM w)";

/// Where rows went, one array for each column, ascending by id.
#[derive(Default)]
struct Sent<'a> {
    ids: Vec<RowId>,
    partitions: Vec<Option<i32>>,
    offsets: Vec<Option<i64>>,
    /// Empty where nothing went by a fallback: the event's own topic stands with the event.
    topics: Vec<Option<&'a str>>,
    by_fallback: Vec<bool>,
}

impl<'a> Sent<'a> {
    fn of(settlement: &'a Settlement) -> Self {
        let fallback: HashSet<RowId> = settlement.by_fallback.iter().copied().collect();
        let told = settlement.positions.iter().map(|(row, position)| (*row, Some(position)));
        let mut places: Vec<(RowId, Option<&Position>)> =
            told.chain(settlement.by_fallback.iter().map(|row| (*row, None))).collect();
        // Stable: of a row that is named twice the first place counts, and a place before none.
        places.sort_by_key(|(row, _)| *row);
        places.dedup_by_key(|(row, _)| *row);
        let mut sent = Self::default();
        for (row, position) in places {
            sent.ids.push(row);
            sent.partitions.push(position.map(|position| position.partition as i32));
            sent.offsets.push(position.map(|position| position.offset as i64));
            if !fallback.is_empty() {
                let by_fallback = fallback.contains(&row);
                sent.topics.push(position.filter(|_| by_fallback).map(|position| &*position.topic));
                sent.by_fallback.push(by_fallback);
            }
        }
        sent
    }
}

/// Settles under the fence; the token names the batch, so the counter is not compared.
pub(crate) async fn settle(core: &Core, settlement: &Settlement) -> Answer<FencedOutcome> {
    let (fence, token) = (&settlement.fence, settlement.token);
    let session = core.relay().await?;
    // A deadlock is thinkable only with somebody who changes these tables by hand: repeating is harmless.
    let sent = Sent::of(settlement);
    let changed = crate::error::retried!(run(&session, core, fence, token, None, &sent))?;
    match changed {
        Some(changed) => Ok(changed),
        None => repeated(&session, fence, token).await,
    }
}

/// The same for a batch of which only the watermark told that it was published; here the counter is compared.
pub(crate) async fn published(core: &Core, fence: &Fence, token: Token) -> Answer<FencedOutcome> {
    let session = core.relay().await?;
    match run(&session, core, fence, token, Some(fence.counter as i64), &Sent::default()).await? {
        Some(changed) => Ok(changed),
        None => repeated(&session, fence, token).await,
    }
}

/// What one hears who closes a batch that is not open under the lease that is named.
pub(crate) async fn repeated(session: &Session, fence: &Fence, token: Token) -> Answer<FencedOutcome> {
    let lease = lease::read(session, fence.partition).await?;
    Ok(lease.map_or(FencedOutcome::Stale, |lease| lease.repeated(fence, token)))
}

async fn run(
    session: &Session,
    core: &Core,
    fence: &Fence,
    token: Token,
    counter: Option<i64>,
    sent: &Sent<'_>,
) -> Answer<Option<FencedOutcome>> {
    let fallback = !sent.by_fallback.is_empty();
    let values: [Value<'_>; 11] = [
        (&(fence.partition.0 as i32), Type::INT4),
        (&&*fence.owner.0, Type::TEXT),
        (&(fence.epoch as i64), Type::INT8),
        (&(token as i64), Type::INT8),
        (&counter, Type::INT8),
        (&sent.ids, Type::INT8_ARRAY),
        (&sent.topics, Type::TEXT_ARRAY),
        (&sent.partitions, Type::INT4_ARRAY),
        (&sent.offsets, Type::INT8_ARRAY),
        (&sent.by_fallback, Type::BOOL_ARRAY),
        (&fallback, Type::BOOL),
    ];
    let known = core.lows.lock().remove(&fence.partition.0);
    let rows = session.once(SETTLE, &values).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (counter, rows, lifted) = read(row)?;
    // Rows behind a head that has left may be ready now, wherever the scan had got to. And what is known holds only where the counter
    // before ours was the one we knew.
    if let Some(mut low) = known
        && lifted == 0
        && low.holds(&Fence { counter: counter - 1, ..fence.clone() })
    {
        low.raised(counter);
        core.lows.lock().insert(fence.partition.0, low);
    }
    Ok(Some(FencedOutcome::Done { counter, rows }))
}

fn read(row: &Row) -> Answer<(u64, u64, i64)> {
    Ok((get::<i64>(row, 0)? as u64, get::<i64>(row, 1)? as u64, get(row, 2)?))
}
