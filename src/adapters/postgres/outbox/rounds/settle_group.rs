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
use crate::outbox::scan::scan_start::ScanStart;
use crate::outbox::settle::{self, SentColumns};
use crate::store::context::StoreContext;

/// Does per partition what the settlement of one partition does, with the lease rows locked in the order of their numbers. The positions of all
/// partitions follow one another; those of a partition are a slice, which is archived as it is if it names exactly the rows. A FULL JOIN, because
/// PostgreSQL runs it as a hash join. For a LEFT JOIN it would expect one lease row, and compare each row with all others in a nested loop.
const SETTLE: &str = concat!(
    "WITH asked AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::int4[], $6::int4[], $7::bool[])
       asked (partition, owner, epoch, token, low, high, fallback)),
     open_batch AS MATERIALIZED (SELECT lease.partition, lease.first_id, lease.last_id, lease.open_ids, lease.claimer, lease.claimed_at,
         lease.in_flight AS token, asked.low, asked.high, asked.fallback
       FROM asked JOIN outbox_lease lease ON lease.partition = asked.partition
       WHERE lease.owner = asked.owner AND lease.epoch = asked.epoch AND lease.in_flight = asked.token ORDER BY lease.partition FOR UPDATE OF lease),
     deleted AS MATERIALIZED (DELETE FROM outbox queued WHERE queued.ctid = ANY (ARRAY(",
    open_row_ctids!(),
    ")) RETURNING queued.partition, queued.id, queued.key, queued.attempts + 1 AS attempts, queued.deaths, queued.failure_type, queued.reason),
     unblocked AS MATERIALIZED (DELETE FROM outbox_waiting waiting USING deleted
       WHERE waiting.partition = deleted.partition AND waiting.key = deleted.key AND waiting.id = deleted.id RETURNING waiting.partition),
     summary AS MATERIALIZED (SELECT partition, count(*) AS events, array_agg(id) AS ids, min(id) AS first, max(id) AS last,
         max(attempts) AS attempts_max, array_agg(attempts) AS attempts, max(deaths) AS deaths_max,
         array_agg(deaths) AS deaths, count(failure_type) + count(reason) AS failures, array_agg(failure_type) AS failure_types,
         array_agg(reason) AS reasons
       FROM (SELECT * FROM deleted ORDER BY partition, id) deleted GROUP BY partition),
     sent AS MATERIALIZED (SELECT summary.*, open_batch.token, open_batch.claimer, open_batch.claimed_at, open_batch.low, open_batch.high,
         open_batch.fallback, known.ids AS known, summary.ids = known.ids AS exact
       FROM summary JOIN open_batch ON open_batch.partition = summary.partition
         CROSS JOIN LATERAL (SELECT ($8::int8[])[open_batch.low:open_batch.high] AS ids OFFSET 0) known),
     archived AS (INSERT INTO outbox_archive (partition, token, owner, sent_at, events, first_id, last_id, ids, topic_partitions, topic_offsets,
           topics, by_fallback, attempts, deaths, failure_types, reasons, claimed_at)
         SELECT sent.partition, sent.token, sent.claimer, clock_timestamp(), sent.events, sent.first, sent.last, sent.ids,
           CASE WHEN sent.exact THEN ($9::int4[])[sent.low:sent.high] ELSE found.partitions END,
           CASE WHEN sent.exact THEN ($10::int8[])[sent.low:sent.high] ELSE found.topic_offsets END,
           CASE WHEN NOT sent.fallback THEN NULL WHEN sent.exact THEN ($11::text[])[sent.low:sent.high] ELSE found.topics END,
           CASE WHEN NOT sent.fallback THEN NULL WHEN sent.exact THEN ($12::bool[])[sent.low:sent.high] ELSE found.by_fallback END,
           CASE WHEN sent.attempts_max > 1 THEN sent.attempts END, CASE WHEN sent.deaths_max > 0 THEN sent.deaths END,
           CASE WHEN sent.failures > 0 THEN sent.failure_types END, CASE WHEN sent.failures > 0 THEN sent.reasons END, sent.claimed_at
         FROM sent LEFT JOIN LATERAL (SELECT array_agg(($9)[item.at] ORDER BY item.number) AS partitions,
             array_agg(($10)[item.at] ORDER BY item.number) AS topic_offsets, array_agg(($11)[item.at] ORDER BY item.number) AS topics,
             array_agg(($12)[item.at] ORDER BY item.number) AS by_fallback
           FROM (SELECT item.number, sent.low + array_position(sent.known, item.id) - 1 AS at
             FROM unnest(sent.ids) WITH ORDINALITY item (id, number)) item
           WHERE NOT sent.exact) found ON true),
     settled AS MATERIALIZED (SELECT open_batch.partition, coalesce(summary.events, 0) AS events
       FROM open_batch FULL JOIN summary ON summary.partition = open_batch.partition)
     UPDATE outbox_lease lease SET ",
    close_open_batch!(),
    ", archived = lease.archived + settled.events
     FROM settled LEFT JOIN (SELECT partition, count(*) AS rows FROM unblocked GROUP BY partition) unblocked
       ON unblocked.partition = settled.partition
     WHERE lease.partition = settled.partition RETURNING lease.partition, lease.counter, settled.events, coalesce(unblocked.rows, 0) AS unblocked"
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
    /// Per partition the index of its first position in `sent`, from 1.
    first_indexes: Vec<i32>,
    /// Per partition the index of its last position in `sent`; without positions it is below the first.
    last_indexes: Vec<i32>,
    any_fallback: Vec<bool>,
    sent: SentColumns<'a>,
}

impl<'a> SettleGroup<'a> {
    pub(crate) fn new(context: &StoreContext, settlements: Vec<&'a Settlement>) -> Self {
        let fences = || settlements.iter().map(|settlement| &settlement.fence);
        let (mut first_indexes, mut last_indexes, mut any_fallback) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = SentColumns::default();
        for settlement in &settlements {
            let sent = SentColumns::new(settlement);
            let fallback = !sent.by_fallback.is_empty();
            if fallback {
                // The partitions before this one went to no fallback; their positions in these columns are not read.
                all.topics.resize(all.ids.len(), None);
                all.by_fallback.resize(all.ids.len(), false);
            }
            first_indexes.push(all.ids.len() as i32 + 1);
            all.ids.extend(sent.ids);
            all.partitions.extend(sent.partitions);
            all.offsets.extend(sent.offsets);
            all.topics.extend(sent.topics);
            all.by_fallback.extend(sent.by_fallback);
            last_indexes.push(all.ids.len() as i32);
            any_fallback.push(fallback);
        }
        Self {
            known: fences().map(|fence| context.scan_starts.take(fence.partition.0)).collect(),
            leases: LeaseColumns {
                partitions: fences().map(|fence| fence.partition.0 as i32).collect(),
                owners: fences().map(|fence| &*fence.owner.0).collect(),
                epochs: fences().map(|fence| fence.epoch as i64).collect(),
                tokens: settlements.iter().map(|settlement| settlement.token as i64).collect(),
            },
            first_indexes,
            last_indexes,
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
            (&self.first_indexes, Type::INT4_ARRAY),
            (&self.last_indexes, Type::INT4_ARRAY),
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
    pub(crate) fn outcomes(
        self,
        context: &StoreContext,
        rows: Vec<Row>,
    ) -> StatementResult<Vec<Option<FencedOutcome>>> {
        let mut closed: HashMap<u32, (i64, i64, i64)> = HashMap::new();
        for row in &rows {
            let partition = get::<i32>(row, "partition")?.unsigned_abs();
            closed.insert(partition, (get(row, "counter")?, get(row, "events")?, get(row, "unblocked")?));
        }
        let outcome = |(settlement, known): (&Settlement, Option<ScanStart>)| {
            let (counter, rows, unblocked) = closed.get(&settlement.fence.partition.0)?;
            Some(settle::record_closed(context, &settlement.fence, known, *counter, *rows, *unblocked))
        };
        Ok(self.settlements.into_iter().zip(self.known).map(outcome).collect())
    }
}
