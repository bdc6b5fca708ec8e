//! Settling: an open batch is SENT, its rows move to the archive, and keys whose head was among them wait no longer. One statement; it
//! finds nothing to do when it is repeated.
use std::collections::HashSet;

use ports::outbox::{Changed, RowId, Settlement};
use ports::partitions::{Fence, Token};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Answer;
use crate::lease;
use crate::session::Session;
use crate::store::Core;
use crate::value::{Value, get};

const SETTLE: &str = "WITH l AS MATERIALIZED (SELECT first_id, last_id FROM outbox_lease
       WHERE partition = $1 AND owner = $2 AND epoch = $3 AND in_flight = $4 AND ($5::int8 IS NULL OR counter = $5) FOR UPDATE),
     d AS MATERIALIZED (DELETE FROM outbox o USING l WHERE o.partition = $1 AND o.id BETWEEN l.first_id AND l.last_id AND o.status = 1
         AND o.lease_version = $4 RETURNING o.id, o.key, o.attempts, o.deaths, o.lease_owner, o.failure_type, o.reason),
     w AS (DELETE FROM outbox_waiting w USING d WHERE w.partition = $1 AND w.key = d.key AND w.id = d.id RETURNING 1),
     a AS (INSERT INTO outbox_archive (id, partition, token, owner, attempts, deaths, sent_at, topic, topic_partition, topic_offset,
           by_fallback, failure_type, reason)
         SELECT d.id, $1, $4, d.lease_owner, d.attempts, d.deaths, clock_timestamp(), p.topic, p.partition, p.place,
           coalesce(p.by_fallback, false), d.failure_type, d.reason
         FROM d LEFT JOIN unnest($6::int8[], $7::text[], $8::int4[], $9::int8[], $10::bool[]) AS p (id, topic, partition, place, by_fallback)
           ON p.id = d.id RETURNING 1),
     n AS (SELECT (SELECT count(*) FROM a) AS sent, (SELECT count(*) FROM w) AS lifted)
     UPDATE outbox_lease t SET counter = counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, died = false, trial = false,
       first_id = NULL, last_id = NULL, closed = in_flight, archived = archived + n.sent
     FROM l, n WHERE t.partition = $1 RETURNING t.counter, n.sent, n.lifted";

/// Where rows went, one array for each column.
#[derive(Default)]
struct Sent<'a> {
    ids: Vec<i64>,
    topics: Vec<Option<&'a str>>,
    partitions: Vec<Option<i32>>,
    offsets: Vec<Option<i64>>,
    by_fallback: Vec<bool>,
}

impl<'a> Sent<'a> {
    fn of(settlement: &'a Settlement) -> Self {
        let mut sent = Self::default();
        let fallback: HashSet<RowId> = settlement.by_fallback.iter().copied().collect();
        let mut known = HashSet::new();
        for (row, position) in &settlement.positions {
            if !known.insert(*row) {
                continue;
            }
            let by_fallback = fallback.contains(row);
            sent.ids.push(*row);
            // The event's own topic stands with the event.
            sent.topics.push(by_fallback.then_some(&*position.topic));
            sent.partitions.push(Some(position.partition as i32));
            sent.offsets.push(Some(position.offset as i64));
            sent.by_fallback.push(by_fallback);
        }
        for row in fallback.into_iter().filter(|row| !known.contains(row)) {
            sent.ids.push(row);
            sent.topics.push(None);
            sent.partitions.push(None);
            sent.offsets.push(None);
            sent.by_fallback.push(true);
        }
        sent
    }
}

/// Settles under the fence; the token names the batch, so the counter is not compared.
pub(crate) async fn settle(core: &Core, settlement: &Settlement) -> Answer<Changed> {
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
pub(crate) async fn published(core: &Core, fence: &Fence, token: Token) -> Answer<Changed> {
    let session = core.relay().await?;
    match run(&session, core, fence, token, Some(fence.counter as i64), &Sent::default()).await? {
        Some(changed) => Ok(changed),
        None => repeated(&session, fence, token).await,
    }
}

/// What one hears who closes a batch that is not open under the lease that is named.
pub(crate) async fn repeated(session: &Session, fence: &Fence, token: Token) -> Answer<Changed> {
    let lease = lease::read(session, fence.partition).await?;
    Ok(lease.map_or(Changed::Stale, |lease| lease.repeated(fence, token)))
}

async fn run(
    session: &Session,
    core: &Core,
    fence: &Fence,
    token: Token,
    counter: Option<i64>,
    sent: &Sent<'_>,
) -> Answer<Option<Changed>> {
    let values: [Value<'_>; 10] = [
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
    Ok(Some(Changed::Done { counter, rows }))
}

fn read(row: &Row) -> Answer<(u64, u64, i64)> {
    Ok((get::<i64>(row, 0)? as u64, get::<i64>(row, 1)? as u64, get(row, 2)?))
}
