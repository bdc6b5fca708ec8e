//! `PartitionLeases`: members and who may move which partition's rows.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Epoch, Fence, InstanceId, Liveness, MemberView, OpenBatch, PartitionLeases,
    PartitionNo, PartitionView, ProducerSessionId, Release, Token,
};
use rusqlite::{Connection, params};

use crate::engine::Work;
use crate::error::{Answer, Trouble};
use crate::lease;
use crate::open::Embedded;

/// Members not heard of for so many times their `dead_after` are forgotten.
const FORGOTTEN_AFTER: i64 = 1_000;

#[async_trait]
impl PartitionLeases for Embedded {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error> {
        let (instance, dead_after) = (instance.clone(), millis(dead_after));
        self.write("heartbeat", move |work| heartbeat(work, &instance, dead_after)).await
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let instance = instance.clone();
        self.write("leave", move |work| {
            work.sql.prepare_cached("DELETE FROM member WHERE instance = ?1")?.execute([&*instance.0])?;
            Ok(())
        })
        .await
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        because: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let owner = owner.clone();
        self.write("acquire", move |work| acquire(work, partition, owner, because, watermark, millis(ttl))).await
    }

    async fn renew(
        &self,
        owner: &InstanceId,
        held: &[(PartitionNo, Epoch)],
        ttl: Duration,
    ) -> Result<Vec<PartitionNo>, Error> {
        let (owner, held, ttl) = (owner.clone(), held.to_vec(), millis(ttl));
        self.write("renew", move |work| {
            let now = work.now.millis();
            let mut statement = work.sql.prepare_cached(
                "UPDATE outbox_lease SET expires_at = ?4 WHERE partition = ?1 AND owner = ?2 AND epoch = ?3 AND expires_at > ?5",
            )?;
            let mut ours = Vec::with_capacity(held.len());
            for (partition, epoch) in held {
                let values = params![partition.0, &*owner.0, epoch as i64, now.saturating_add(ttl), now];
                if statement.execute(values)? == 1 {
                    ours.push(partition);
                }
            }
            Ok(ours)
        })
        .await
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error> {
        let fence = Fence { partition, owner: owner.clone(), epoch, counter: 0 };
        self.write("release", move |work| {
            let Some(lease) = lease::read(work, partition.0)?.filter(|lease| lease.is_of(&fence)) else {
                return Ok(Release::NotOurs);
            };
            if lease.in_flight.is_some() {
                return Ok(Release::InFlight);
            }
            let free = "UPDATE outbox_lease SET owner = NULL, expires_at = NULL WHERE partition = ?1";
            work.sql.prepare_cached(free)?.execute([partition.0])?;
            Ok(Release::Done)
        })
        .await
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        self.read("overview", overview).await
    }
}

fn heartbeat(work: &Work<'_>, instance: &InstanceId, dead_after: i64) -> Answer<Vec<MemberView>> {
    let now = work.now.millis();
    let mut beat = work.sql.prepare_cached(
        "INSERT INTO member (instance, seen_at, dead_after_ms) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at), dead_after_ms = excluded.dead_after_ms",
    )?;
    beat.execute(params![&*instance.0, now, dead_after])?;
    let mut forget = work.sql.prepare_cached("DELETE FROM member WHERE seen_at + dead_after_ms * ?2 < ?1")?;
    forget.execute(params![now, FORGOTTEN_AFTER])?;
    let mut all = work.sql.prepare_cached("SELECT instance, seen_at FROM member ORDER BY instance")?;
    let members = all.query_map([], |row| {
        let seen_at: i64 = row.get(1)?;
        let alive = seen_at.saturating_add(dead_after) > now;
        Ok(MemberView {
            instance: InstanceId(row.get::<_, String>(0)?.into()),
            alive,
            seen_at: Timestamp::from_millis(seen_at),
        })
    })?;
    Ok(members.collect::<Result<_, _>>()?)
}

fn acquire(
    work: &mut Work<'_>,
    partition: PartitionNo,
    owner: InstanceId,
    because: AcquireReason,
    watermark: Option<Token>,
    ttl: i64,
) -> Answer<Acquisition> {
    let Some(lease) = lease::read(work, partition.0)? else {
        return Err(Trouble::Said(Error::Rejected(format!("there is no partition {partition}"))));
    };
    let former = lease.owner.as_deref();
    let heart = former.map_or(Ok(Liveness::Unknown), |former| lease::heart(work, former))?;
    let now = work.now.millis();
    if lease.held_against(&owner, heart, now) {
        let by = InstanceId(former.unwrap_or_default().into());
        let remaining = Duration::from_millis(lease.expires_at.saturating_sub(now).unsigned_abs());
        return Ok(Acquisition::Held { by, remaining });
    }
    let owner_died = because.owner_died(former, &owner, heart);
    let died = lease.claimer_died(owner_died);
    if because == AcquireReason::Vacant && owner_died {
        forgive(work, partition, lease.in_flight.as_ref().map(|open| open.token))?;
    }
    let epoch = lease.epoch + 1;
    let counter = lease.counter.max(watermark.unwrap_or(0)) + 1;
    let mut take = work.sql.prepare_cached(
        "UPDATE outbox_lease SET owner = ?2, epoch = ?3, counter = ?4, expires_at = ?5, died = ?6 WHERE partition = ?1",
    )?;
    take.execute(params![partition.0, &*owner.0, epoch as i64, counter as i64, now.saturating_add(ttl), died])?;
    let in_flight = lease.in_flight.map(|open| OpenBatch {
        token: open.token,
        session: ProducerSessionId(open.lane.into()),
        claimer_died: died,
    });
    Ok(Acquisition::Taken(Acquired { fence: Fence { partition, owner, epoch, counter }, in_flight }))
}

/// A death without them in hand clears the rows that were suspected: what killed was something else.
fn forgive(work: &mut Work<'_>, partition: PartitionNo, open: Option<Token>) -> Answer<()> {
    let mut keys = work.sql.prepare_cached(
        "UPDATE outbox INDEXED BY outbox_died SET deaths = 0, trial_deaths = 0
         WHERE partition = ?1 AND deaths > 0 AND NOT (status = 1 AND lease_version = ?2) RETURNING key",
    )?;
    let token = open.map_or(-1, |token| token as i64);
    let keys: Vec<[u8; 16]> =
        keys.query_map(params![partition.0, token], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for key in keys {
        crate::blocks::refresh(work, partition.0, key)?;
    }
    Ok(())
}

fn overview(sql: &Connection) -> Answer<Vec<PartitionView>> {
    let mut statement = sql.prepare_cached(
        "SELECT l.partition, l.owner, l.epoch, l.counter, l.in_flight, l.expires_at, c.pending + c.in_flight + c.failed + c.parked
         FROM outbox_lease l JOIN outbox_count c USING (partition) ORDER BY l.partition",
    )?;
    let views = statement.query_map([], |row| {
        Ok(PartitionView {
            partition: PartitionNo(row.get(0)?),
            owner: row.get::<_, Option<String>>(1)?.map(|name| InstanceId(name.into())),
            epoch: row.get::<_, i64>(2)? as u64,
            counter: row.get::<_, i64>(3)? as u64,
            in_flight: row.get::<_, Option<i64>>(4)?.map(|token| token as u64),
            expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
            depth: row.get::<_, i64>(6)? as u64,
        })
    })?;
    Ok(views.collect::<Result<_, _>>()?)
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
