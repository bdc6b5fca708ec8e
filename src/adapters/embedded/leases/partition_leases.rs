//! `PartitionLeases`: members, and the ownership of partitions.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use outbox::AcquireDecision;
use outbox::limits::INSTANCE_RETENTION_FACTOR;
use ports::Error;
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, Epoch, FreePartition, InstanceId, InstanceLoad, InstanceRank,
    LeaseFence, LeaseSurvey, Liveness, OpenBatch, PartitionLeases, PartitionNo, PartitionView, ReleaseOutcome, Renewal,
    Token,
};
use rusqlite::{Connection, params};

use super::lease;
use crate::connection::group_commit::WriteContext;
use crate::error::{CommandResult, WriteError};
use crate::outbox::blocked_keys;
use crate::store::Embedded;
use crate::units::millis;

#[async_trait]
impl PartitionLeases for Embedded {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        let (instance, dead_after) = (instance.clone(), millis(dead_after));
        self.write("heartbeat", move |context| heartbeat(context, &instance, dead_after)).await
    }

    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        let (instance, now) = (instance.clone(), self.inner.clock.now());
        self.read("survey", move |sql| survey(sql, &instance, now)).await
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let instance = instance.clone();
        self.write("leave", move |context| {
            context.sql.prepare_cached("DELETE FROM relay_instance WHERE instance = ?1")?.execute([&*instance.0])?;
            Ok(())
        })
        .await
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let owner = owner.clone();
        self.write("acquire", move |context| acquire(context, partition, owner, reason, watermark, millis(ttl))).await
    }

    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        let (owner, held, ttl) = (owner.clone(), held.to_vec(), millis(ttl));
        self.write("renew", move |context| {
            let now = context.now.millis();
            let mut statement = context.sql.prepare_cached(
                "UPDATE outbox_lease SET expires_at = ?4 WHERE partition = ?1 AND owner = ?2 AND epoch = ?3 AND expires_at > ?5",
            )?;
            let mut renewed = Vec::with_capacity(held.len());
            for (partition, epoch) in held {
                let values = params![partition.0, &*owner.0, epoch as i64, now.saturating_add(ttl), now];
                if statement.execute(values)? == 1 {
                    renewed.push(partition);
                }
            }
            Ok(Renewal { renewed, locked: Vec::new() })
        })
        .await
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        let owner = owner.clone();
        self.write("release", move |context| {
            let Some(row) = lease::read(context, partition)? else { return Ok(ReleaseOutcome::NotHeld) };
            let release = row.lease.release(&owner, epoch);
            if release == ReleaseOutcome::Done {
                // `expires_at` becomes the time of the release, so that a survey shows since when the partition is free.
                let free = "UPDATE outbox_lease SET owner = NULL, expires_at = ?2 WHERE partition = ?1";
                context.sql.prepare_cached(free)?.execute(params![partition.0, context.now.millis()])?;
            }
            Ok(release)
        })
        .await
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        self.read("overview", overview).await
    }
}

fn heartbeat(context: &WriteContext<'_>, instance: &InstanceId, dead_after: i64) -> CommandResult<InstanceRank> {
    let now = context.now.millis();
    let mut upsert = context.sql.prepare_cached(
        "INSERT INTO relay_instance (instance, seen_at, dead_after_ms) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at), dead_after_ms = excluded.dead_after_ms",
    )?;
    upsert.execute(params![&*instance.0, now, dead_after])?;
    let mut delete =
        context.sql.prepare_cached("DELETE FROM relay_instance WHERE seen_at + dead_after_ms * ?2 < ?1")?;
    delete.execute(params![now, INSTANCE_RETENTION_FACTOR])?;
    let mut count = context.sql.prepare_cached(
        "SELECT count(*) FILTER (WHERE instance < ?1), count(*) FROM relay_instance WHERE seen_at + dead_after_ms > ?2",
    )?;
    let values = params![&*instance.0, now];
    Ok(count.query_row(values, |row| Ok(InstanceRank { rank: row.get(0)?, live: row.get(1)? }))?)
}

fn survey(sql: &Connection, instance: &InstanceId, now: Timestamp) -> CommandResult<LeaseSurvey> {
    let now = now.millis();
    let mut leases = sql.prepare_cached(
        "SELECT l.partition, l.owner = ?1, l.owner IS NULL OR l.expires_at <= ?2 OR coalesce(m.seen_at + m.dead_after_ms <= ?2, 0),
           coalesce(min(l.expires_at, coalesce(m.seen_at + m.dead_after_ms, l.expires_at)), 0) AS since
         FROM outbox_lease l LEFT JOIN relay_instance m ON m.instance = l.owner ORDER BY since, l.partition",
    )?;
    let mut survey = LeaseSurvey::default();
    let mut rows = leases.query(params![&*instance.0, now])?;
    while let Some(row) = rows.next()? {
        let (partition, own, free) = (PartitionNo(row.get(0)?), row.get::<_, Option<bool>>(1)?, row.get(2)?);
        match (own, free) {
            (_, true) => {
                let idle = Timestamp::from_millis(now).since(Timestamp::from_millis(row.get(3)?));
                survey.free.push(FreePartition { partition, idle });
            }
            (Some(true), false) => survey.own.push(partition),
            (Some(false) | None, false) => {}
        }
    }
    survey.own.sort_unstable();
    let mut members = sql.prepare_cached(
        "SELECT m.instance, count(l.partition) FROM relay_instance m
         LEFT JOIN outbox_lease l ON l.owner = m.instance AND l.expires_at > ?1
         WHERE m.seen_at + m.dead_after_ms > ?1 GROUP BY m.instance ORDER BY m.instance",
    )?;
    let loads = members.query_map([now], |row| {
        Ok(InstanceLoad { instance: InstanceId(row.get::<_, String>(0)?.into()), held: row.get(1)? })
    })?;
    survey.members = loads.collect::<Result<_, _>>()?;
    Ok(survey)
}

fn acquire(
    context: &mut WriteContext<'_>,
    partition: PartitionNo,
    owner: InstanceId,
    reason: AcquireReason,
    watermark: Option<Token>,
    ttl: i64,
) -> CommandResult<Acquisition> {
    let Some(row) = lease::read(context, partition)? else {
        return Err(WriteError::Port(Error::Rejected(format!("there is no partition {partition}"))));
    };
    let lease = row.lease;
    let former = lease.owner.as_ref();
    let liveness = former.map_or(Ok(Liveness::Unknown), |former| lease::liveness(context, former))?;
    let (epoch, counter, claimer_died) = match lease.acquire(&owner, reason, liveness, watermark) {
        AcquireDecision::Held { by, remaining } => return Ok(Acquisition::Held { by, remaining }),
        AcquireDecision::Acquired { epoch, counter, claimer_died, clears_deaths } => {
            if clears_deaths {
                clear_deaths(context, partition, lease.open_batch.as_ref().map(|open| open.token))?;
            }
            (epoch, counter, claimer_died)
        }
    };
    let expires_at = context.now.millis().saturating_add(ttl);
    let mut update = context.sql.prepare_cached(
        "UPDATE outbox_lease SET owner = ?2, epoch = ?3, counter = ?4, expires_at = ?5, died = ?6 WHERE partition = ?1",
    )?;
    update.execute(params![partition.0, &*owner.0, epoch as i64, counter as i64, expires_at, claimer_died])?;
    let open_batch = lease.open_batch.map(|open| OpenBatch { token: open.token, session: open.session, claimer_died });
    Ok(Acquisition::Acquired(AcquiredLease { fence: LeaseFence { partition, owner, epoch, counter }, open_batch }))
}

/// Sets the deaths of rows outside the open batch to zero: they were not in flight when the owner died.
fn clear_deaths(context: &mut WriteContext<'_>, partition: PartitionNo, open: Option<Token>) -> CommandResult<()> {
    let mut update = context.sql.prepare_cached(
        "UPDATE outbox INDEXED BY outbox_died SET deaths = 0, trial_deaths = 0
         WHERE partition = ?1 AND deaths > 0 AND NOT (status = 1 AND lease_version = ?2) RETURNING key",
    )?;
    let token = open.map_or(-1, |token| token as i64);
    let keys: Vec<[u8; 16]> =
        update.query_map(params![partition.0, token], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for key in keys {
        blocked_keys::refresh(context, partition.0, key)?;
    }
    Ok(())
}

fn overview(sql: &Connection) -> CommandResult<Vec<PartitionView>> {
    let mut statement = sql.prepare_cached(
        "SELECT l.partition, l.owner, l.epoch, l.counter, l.in_flight, iif(l.owner IS NULL, NULL, l.expires_at), c.pending + c.in_flight + c.failed + c.parked
         FROM outbox_lease l JOIN outbox_count c USING (partition) ORDER BY l.partition",
    )?;
    let views = statement.query_map([], |row| {
        Ok(PartitionView {
            partition: PartitionNo(row.get(0)?),
            owner: row.get::<_, Option<String>>(1)?.map(|name| InstanceId(name.into())),
            epoch: row.get::<_, i64>(2)? as u64,
            counter: row.get::<_, i64>(3)? as u64,
            open_batch: row.get::<_, Option<i64>>(4)?.map(|token| token as u64),
            expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
            depth: row.get::<_, i64>(6)? as u64,
        })
    })?;
    Ok(views.collect::<Result<_, _>>()?)
}
