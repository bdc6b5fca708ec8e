//! Settlements of several partitions in one statement. A partition whose batch is not open under its lease yields no row.
use std::collections::HashMap;

use outbox::FencedOutcome;
use ports::outbox::Settlement;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::StatementResult;
use crate::leases::lease_row::close_open_batch;
use crate::outbox::open_batch::open_row_ctids;
use crate::outbox::scan_start::ScanStart;
use crate::outbox::settle::{self, SentColumns};
use crate::store::core::Core;

/// Does per partition what the settlement of one partition does, with the lease rows locked in the order of their numbers. The positions
/// of all partitions follow one another; those of a partition are a slice, which is archived as it is if it names exactly the rows.
/// A FULL JOIN, because PostgreSQL runs it as a hash join only: it expects one lease row, and would compare each with all others in a LEFT JOIN.
const SETTLE: &str = concat!(
    "WITH u AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::int4[], $6::int4[], $7::bool[])
       u (partition, owner, epoch, token, low, high, fallback)),
     l AS MATERIALIZED (SELECT t.partition, t.first_id, t.last_id, t.open_ids, t.claimer, t.claimed_at, t.in_flight AS token, u.low, u.high, u.fallback
       FROM u JOIN outbox_lease t ON t.partition = u.partition
       WHERE t.owner = u.owner AND t.epoch = u.epoch AND t.in_flight = u.token ORDER BY t.partition FOR UPDATE OF t),
     d AS MATERIALIZED (DELETE FROM outbox o WHERE o.ctid = ANY (ARRAY(",
    open_row_ctids!(),
    ")) RETURNING o.partition, o.id, o.key, o.attempts + 1 AS attempts, o.deaths, o.failure_type, o.reason),
     w AS MATERIALIZED (DELETE FROM outbox_waiting w USING d WHERE w.partition = d.partition AND w.key = d.key AND w.id = d.id
       RETURNING w.partition),
     n AS MATERIALIZED (SELECT partition, count(*) AS sent, array_agg(id) AS ids, min(id) AS first, max(id) AS last,
         max(attempts) AS attempts_max, array_agg(attempts) AS attempts, max(deaths) AS deaths_max,
         array_agg(deaths) AS deaths, count(failure_type) + count(reason) AS failures, array_agg(failure_type) AS failure_types,
         array_agg(reason) AS reasons
       FROM (SELECT * FROM d ORDER BY partition, id) d GROUP BY partition),
     p AS MATERIALIZED (SELECT n.*, l.token, l.claimer, l.claimed_at, l.low, l.high, l.fallback, known.ids AS known, n.ids = known.ids AS exact
       FROM n JOIN l ON l.partition = n.partition CROSS JOIN LATERAL (SELECT ($8::int8[])[l.low:l.high] AS ids OFFSET 0) known),
     a AS (INSERT INTO outbox_archive (partition, token, owner, sent_at, events, first_id, last_id, ids, topic_partitions, topic_offsets,
           topics, by_fallback, attempts, deaths, failure_types, reasons, claimed_at)
         SELECT p.partition, p.token, p.claimer, clock_timestamp(), p.sent, p.first, p.last, p.ids,
           CASE WHEN p.exact THEN ($9::int4[])[p.low:p.high] ELSE o.partitions END,
           CASE WHEN p.exact THEN ($10::int8[])[p.low:p.high] ELSE o.places END,
           CASE WHEN NOT p.fallback THEN NULL WHEN p.exact THEN ($11::text[])[p.low:p.high] ELSE o.topics END,
           CASE WHEN NOT p.fallback THEN NULL WHEN p.exact THEN ($12::bool[])[p.low:p.high] ELSE o.by_fallback END,
           CASE WHEN p.attempts_max > 1 THEN p.attempts END, CASE WHEN p.deaths_max > 0 THEN p.deaths END,
           CASE WHEN p.failures > 0 THEN p.failure_types END, CASE WHEN p.failures > 0 THEN p.reasons END, p.claimed_at
         FROM p LEFT JOIN LATERAL (SELECT array_agg(($9)[i.at] ORDER BY i.number) AS partitions,
             array_agg(($10)[i.at] ORDER BY i.number) AS places, array_agg(($11)[i.at] ORDER BY i.number) AS topics,
             array_agg(($12)[i.at] ORDER BY i.number) AS by_fallback
           FROM (SELECT i.number, p.low + array_position(p.known, i.id) - 1 AS at FROM unnest(p.ids) WITH ORDINALITY i (id, number)) i
           WHERE NOT p.exact) o ON true),
     j AS MATERIALIZED (SELECT l.partition, n.sent FROM l FULL JOIN n ON n.partition = l.partition)
     UPDATE outbox_lease t SET ",
    close_open_batch!(),
    ", archived = t.archived + coalesce(j.sent, 0)
     FROM j LEFT JOIN (SELECT partition, count(*) AS unblocked FROM w GROUP BY partition) w ON w.partition = j.partition
     WHERE t.partition = j.partition RETURNING t.partition, t.counter, coalesce(j.sent, 0), coalesce(w.unblocked, 0)"
);

/// The open batches that are settled, one array per column.
struct LeaseColumns<'a> {
    partitions: Vec<i32>,
    owners: Vec<&'a str>,
    epochs: Vec<i64>,
    tokens: Vec<i64>,
}

/// Settlements of different partitions, and their parameters as columns.
pub(crate) struct SettleGroup<'a> {
    settlements: Vec<&'a Settlement>,
    /// The scan starts before the statement.
    known: Vec<Option<ScanStart>>,
    leases: LeaseColumns<'a>,
    /// The first and last place of the partition's positions; the last lies before the first if there are none.
    lows: Vec<i32>,
    highs: Vec<i32>,
    any_fallback: Vec<bool>,
    sent: SentColumns<'a>,
}

impl<'a> SettleGroup<'a> {
    pub(crate) fn new(core: &Core, settlements: Vec<&'a Settlement>) -> Self {
        let fences = || settlements.iter().map(|settlement| &settlement.fence);
        let (mut lows, mut highs, mut any_fallback) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = SentColumns::default();
        for settlement in &settlements {
            let sent = SentColumns::of(settlement);
            let fallback = !sent.by_fallback.is_empty();
            if fallback {
                // The partitions before this one went to no fallback; their places in these columns are not read.
                all.topics.resize(all.ids.len(), None);
                all.by_fallback.resize(all.ids.len(), false);
            }
            lows.push(all.ids.len() as i32 + 1);
            all.ids.extend(sent.ids);
            all.partitions.extend(sent.partitions);
            all.offsets.extend(sent.offsets);
            all.topics.extend(sent.topics);
            all.by_fallback.extend(sent.by_fallback);
            highs.push(all.ids.len() as i32);
            any_fallback.push(fallback);
        }
        Self {
            known: fences().map(|fence| core.scan_memory.take(fence.partition.0)).collect(),
            leases: LeaseColumns {
                partitions: fences().map(|fence| fence.partition.0 as i32).collect(),
                owners: fences().map(|fence| &*fence.owner.0).collect(),
                epochs: fences().map(|fence| fence.epoch as i64).collect(),
                tokens: settlements.iter().map(|settlement| settlement.token as i64).collect(),
            },
            lows,
            highs,
            any_fallback,
            sent: all,
            settlements,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.settlements.is_empty()
    }

    /// The statement and its parameters; `None` without settlements.
    pub(crate) fn statement(&self) -> Option<(&'static str, Vec<SqlValue<'_>>)> {
        let values: Vec<SqlValue<'_>> = vec![
            (&self.leases.partitions, Type::INT4_ARRAY),
            (&self.leases.owners, Type::TEXT_ARRAY),
            (&self.leases.epochs, Type::INT8_ARRAY),
            (&self.leases.tokens, Type::INT8_ARRAY),
            (&self.lows, Type::INT4_ARRAY),
            (&self.highs, Type::INT4_ARRAY),
            (&self.any_fallback, Type::BOOL_ARRAY),
            (&self.sent.ids, Type::INT8_ARRAY),
            (&self.sent.partitions, Type::INT4_ARRAY),
            (&self.sent.offsets, Type::INT8_ARRAY),
            (&self.sent.topics, Type::TEXT_ARRAY),
            (&self.sent.by_fallback, Type::BOOL_ARRAY),
        ];
        (!self.is_empty()).then_some((SETTLE, values))
    }

    /// The outcome of each settlement that closed its batch, in their order; `None` for the others, which changed nothing.
    pub(crate) fn outcomes(self, core: &Core, rows: Vec<Row>) -> StatementResult<Vec<Option<FencedOutcome>>> {
        let mut closed: HashMap<u32, (i64, i64, i64)> = HashMap::new();
        for row in &rows {
            closed.insert(get::<i32>(row, 0)?.unsigned_abs(), (get(row, 1)?, get(row, 2)?, get(row, 3)?));
        }
        let outcome = |(settlement, known): (&Settlement, Option<ScanStart>)| {
            let (counter, rows, unblocked) = closed.get(&settlement.fence.partition.0)?;
            Some(settle::done(core, &settlement.fence, known, *counter, *rows, *unblocked))
        };
        Ok(self.settlements.into_iter().zip(self.known).map(outcome).collect())
    }
}
